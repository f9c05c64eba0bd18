"""A trained biLM and domain text in, a biLM for that domain out (section 3.4, last paragraph).

The language model continues training on the domain's text. Held-out sentences guard against
overfitting: training stops early, and the weights with the lowest perplexity are kept.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from elmore.atomic import lock
from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.language_model import read_language_model
from elmore.checkpoint.pretrained import find_model, read_pretrained
from elmore.device import find_device
from elmore.errors import InputError, require
from elmore.pretrain.config import PretrainConfig, RunConfig, TrainingConfig
from elmore.pretrain.heldout import read_heldout
from elmore.pretrain.loop import Pretraining, new_model
from elmore.pretrain.run import CACHE, check_files, finish, run_folder, train
from elmore.progress import Progress
from elmore.schema import POSITIVE_OR_INF, check
from elmore.text.corpus import encode_corpus
from elmore.text.vocabulary import Vocabulary
from elmore.training.processes import Processes
from elmore.training.run_folder import Report
from elmore.training.settings import read_settings

TRAINING = TrainingConfig(epochs=10.0, streams=16, lr=1e-3, warmup=0.1)
_MANY_UNKNOWN = 0.25  # share of the words
RUN = RunConfig(heldout=0.05, evaluations=20, patience=3, log_steps=50)


def finetune(
    model: Path,
    files: Sequence[Path],
    output: Path,
    config: PretrainConfig | None = None,
    *,
    options: Path | None = None,
    heldout: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
    cache: Path | None = None,
    workers: int | None = None,
    report: Report = lambda _: None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fine-tune a biLM on text of a domain; return a summary with perplexity before and after.

    `model` is a folder written by `pretrain`, or released weights; `options` is the options.json of
    HDF5 weights, if it is not next to them. Released weights have no softmax, so one is trained
    first while the biLM is frozen, which may take up to `max_minutes`, too.

    The sizes in `config` are replaced by those of the model; tokenizer and language are those of
    the model unless `config` sets them. The other arguments and the exceptions are those of
    `pretrain`.
    """
    config = config or PretrainConfig(training=TRAINING, run=RUN)
    check("max_minutes", max_minutes, POSITIVE_OR_INF, optional=True)
    if config.run.tensorboard:
        require("tensorboard", extra="tensorboard")
    folder = run_folder(output)
    with lock(output), folder.explain_interruption(resume=resume):
        inputs = (find_model(model), options, heldout, *files)
        folder.check(resume=resume, overwrite=overwrite, inputs=inputs)
        check_files(output, cache, heldout)
        saved = read_pretrained(model, options=options, with_softmax=True)
        config = replace(
            config, bilm=saved.bilm.config, text=config.text.for_model(saved.tokenization)
        )
        corpus = encode_corpus(
            files, cache or CACHE, config.text, workers=workers, progress=progress
        )
        new_run = partial(
            Pretraining,
            config,
            corpus,
            processes=Processes(0, 1, find_device(device)),
            heldout=read_heldout(heldout, config.text, corpus, report) if heldout else None,
            max_minutes=max_minutes,
        )
        # A new run checks its settings, so it comes before the folder is created.
        if saved.softmax is not None and saved.vocabulary is not None:
            start = LanguageModel(saved.bilm, saved.softmax), saved.vocabulary
            run = new_run(folder, start=start)
        else:
            start = new_model(config, corpus, saved.bilm.requires_grad_(False))
            run = new_run(run_folder(folder.checkpoints / "softmax"), start=start)
        if not run.heldout:
            raise InputError(
                "fine-tuning needs held-out sentences: raise run.heldout, or provide held-out text"
            )
        if not resume:
            folder.create(config)
        if run.folder != folder:
            start = _train_softmax(run, files, report)
            del run  # frees its optimizer and its best weights
            run = new_run(folder, start=start)
        before = run.evaluate(all_sentences=True)
        report(before)
        if before["heldout"]["unknown"] > _MANY_UNKNOWN:
            report(
                {
                    "note": f"{before['heldout']['unknown']:.0%} of the held-out words are not in "
                    "the vocabulary of the model, so perplexity says little about this text"
                }
            )
        heldout_scores = _train(run, report, resume=resume)
        # Text that was already tokenized does not tell how to tokenize other text.
        used = config.text.tokenization if config.text.tokenizer != "whitespace" else None
        tokenization = used or saved.tokenization
        return finish(
            run,
            files,
            report,
            tokenization,
            heldout=heldout_scores,
            before=before["heldout"],
            model=saved.provenance,
        )


def _train_softmax(
    run: Pretraining, files: Sequence[Path], report: Report
) -> tuple[LanguageModel, Vocabulary]:
    """Train the softmax of a frozen biLM, unless that is already done; return the result."""
    folder = run.folder
    if not folder.complete:
        report({"note": "these weights have no softmax: training one first"})
        resume = folder.path.exists()
        if not resume:
            folder.create(run.config)
        heldout = _train(run, report, resume=resume)
        finish(run, files, report, tokenization=None, heldout=heldout)
        report({"note": "the softmax is trained; now the biLM is trained too"})
    saved = read_language_model(folder.path)
    return saved.model, saved.vocabulary


def _train(run: Pretraining, report: Report, *, resume: bool) -> dict[str, float] | None:
    run.keep_if_best(run.evaluate())  # the initial weights may turn out to be the best
    return train(run, report, resume=resume)


def read_finetune_config(changes: Sequence[str] = ()) -> PretrainConfig:
    """Return the defaults of fine-tuning with `section.name=value` changes on top."""
    sizes = [change for change in changes if change.startswith("bilm.")]
    if sizes:
        raise InputError(f"{sizes[0]}: fine-tuning cannot change the sizes of the model")
    sections = {"training": asdict(TRAINING), "run": asdict(RUN)}
    return read_settings(PretrainConfig, None, changes, sections)
