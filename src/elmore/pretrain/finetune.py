"""A trained biLM and domain text in, a biLM for that domain out (section 3.4, last paragraph).

The language model continues training on the domain's text. Held-out sentences guard against
overfitting: training stops early, and the weights with the lowest perplexity are kept.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.language_model import read_language_model
from elmore.checkpoint.pretrained import read_pretrained
from elmore.embedder import find_device
from elmore.errors import InputError
from elmore.pretrain.config import PretrainConfig, RunConfig, TrainingConfig
from elmore.pretrain.heldout import read_heldout
from elmore.pretrain.loop import Pretraining
from elmore.pretrain.model import new_model
from elmore.pretrain.run import CACHE, Watch, check_run, finish, run_folder, train
from elmore.text.corpus import encode_corpus
from elmore.text.vocabulary import Vocabulary
from elmore.training.processes import Processes
from elmore.training.run_folder import Report, RunFolder
from elmore.training.settings import check_minutes, read_settings

TRAINING = TrainingConfig(epochs=10.0, streams=16, lr=1e-3, warmup=0.1)
RUN = RunConfig(heldout=0.05, evaluations=20, patience=3, log_steps=50)
_SOFTMAX = "softmax"  # subfolder of the run that trains only the softmax


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
    watch: Watch = iter,
) -> dict[str, Any]:
    """Fine-tune a biLM, write it to a folder, and return perplexity before and after.

    Args:
        model: A folder written by `pretrain`, or released weights. Released weights have no
            softmax, so a softmax is trained first while the biLM is frozen.
        files: Text of the domain.
        output: Folder for the model and the run.
        config: Settings of text, vocabulary and training; the sizes are those of the model.
        options: The options.json of HDF5 weights, if it is not next to them.
        heldout: Text to measure perplexity on; by default, some sentences of `files` are held out.
        resume: Resume an interrupted run.
        overwrite: Replace an earlier run in `output`.
        max_minutes: Stop after this many minutes; the learning-rate schedule is fitted to it.
            Training a softmax first may take as long again.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        cache: Folder for encoded text; `~/.cache/elmore` by default.
        workers: Number of processes that tokenize; all cores by default.
        report: Receives metrics and messages while training; see `Report`.
        watch: Wraps the iterator over the encoded text; see `Watch`.

    Raises:
        InterruptedRunError: If SIGINT or SIGTERM stopped the run. It can be resumed.
    """
    config = config or PretrainConfig(training=TRAINING, run=RUN)
    check_minutes(max_minutes)
    folder = run_folder(output)
    check_run(folder, config, resume=resume, overwrite=overwrite)
    bilm, words, provenance, softmax = read_pretrained(model, options=options, with_softmax=True)
    config = replace(config, bilm=bilm.config)
    processes = Processes(0, 1, find_device(device))
    corpus = encode_corpus(files, cache or CACHE, config.text, workers=workers, watch=watch)
    sentences = read_heldout(heldout, config.text, corpus, report) if heldout else None

    def prepare(folder: RunFolder, start: tuple[LanguageModel, Vocabulary]) -> Pretraining:
        run = Pretraining(
            config,
            corpus,
            folder,
            processes=processes,
            heldout=sentences,
            max_minutes=max_minutes,
            start=start,
        )
        if not run.heldout:
            raise InputError(
                "fine-tuning needs held-out sentences: raise run.heldout, or provide held-out text"
            )
        return run

    # Preparing a run checks its settings, so it comes before the folder is created.
    if softmax is not None and words is not None:
        run = prepare(folder, (LanguageModel(bilm, softmax), words))
        if not resume:
            folder.create(config)
    else:
        start = new_model(config, corpus, bilm.requires_grad_(False))
        softmax_run = prepare(run_folder(output / _SOFTMAX), start)
        if not resume:
            folder.create(config)
        start = _train_softmax(softmax_run, files, report)
        del softmax_run  # frees its optimizer and its best weights
        run = prepare(folder, start)
    before = run.evaluate()
    report(before)
    _train(run, report, resume=resume)
    summary = finish(run, files, report, before=before["heldout"], model=provenance)
    shutil.rmtree(output / _SOFTMAX, ignore_errors=True)
    return summary


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
        _train(run, report, resume=resume)
        finish(run, files, report)
        report({"note": "the softmax is trained; now the biLM is trained too"})
    model, vocabulary, _ = read_language_model(folder.path)
    return model, vocabulary


def _train(run: Pretraining, report: Report, *, resume: bool) -> None:
    run.keep_initial_weights()  # they may turn out to be the best
    train(run, report, resume=resume)


def read_finetune_config(changes: Sequence[str] = ()) -> PretrainConfig:
    """Return the defaults of fine-tuning with `section.name=value` changes on top."""
    sizes = [change for change in changes if change.startswith("bilm.")]
    if sizes:
        raise InputError(f"{sizes[0]}: fine-tuning cannot change the sizes of the model")
    sections = {"training": asdict(TRAINING), "run": asdict(RUN)}
    return read_settings(PretrainConfig, None, changes, sections)
