"""A trained biLM and domain text in, a biLM of that domain out (section 3.4, last paragraph).

The language model goes on learning, on the domain's text. Held-out sentences guard against
learning a small text by heart: the weights that predict them best are the ones that stay.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.directory import CONFIG
from elmore.checkpoint.language_model import read_language_model
from elmore.checkpoint.pretrained import read_pretrained
from elmore.embedder import find_device
from elmore.errors import InputError
from elmore.pretrain.config import PretrainConfig, RunConfig, TrainingConfig
from elmore.pretrain.folder import check_folder, finish, make_folder, train
from elmore.pretrain.heldout import Report, read_heldout
from elmore.pretrain.loop import Pretraining
from elmore.pretrain.model import new_model
from elmore.pretrain.run import CACHE, Watch
from elmore.text.corpus import encode_corpus
from elmore.text.vocabulary import Vocabulary
from elmore.training.processes import Processes
from elmore.training.settings import check_minutes, read_settings

TRAINING = TrainingConfig(epochs=10.0, streams=16, lr=1e-3, warmup=0.1)
RUN = RunConfig(heldout=0.05, evaluations=20, patience=3, log_steps=50)
_FIRST = "softmax"  # folder of the run that comes before, where weights have no softmax


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
        model: A folder written by `pretrain`, or released weights. Those come without a softmax,
            so that one is learned first, with the biLM as it is.
        files: Text of the domain.
        output: Folder for the model and the run.
        config: Text, vocabulary and training; the sizes are those of the model.
        options: The options.json of HDF5 weights, if it is not beside them.
        heldout: Text to measure perplexity on; a part of `files` if not given.
        resume: Go on with an interrupted run.
        overwrite: Replace what is in `output`.
        max_minutes: End the training after so long, with its schedule finished. A softmax that
            has to be learned first may take as long again.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        cache: Folder of encoded corpora; `~/.cache/elmore` if not given.
        workers: Processes that tokenize.
        report: Takes lines of metrics, and notes.
        watch: Wraps the stream of encoded text, to show how far it is.
    """
    config = config or PretrainConfig(training=TRAINING, run=RUN)
    check_minutes(max_minutes)
    check_folder(output, config, resume=resume, overwrite=overwrite)
    bilm, words, provenance, softmax = read_pretrained(model, options=options, with_softmax=True)
    config = replace(config, bilm=bilm.config)
    processes = Processes(0, 1, find_device(device))
    corpus = encode_corpus(files, cache or CACHE, config.text, workers=workers, watch=watch)
    sentences = read_heldout(heldout, config.text, corpus, report) if heldout else None

    def prepare(folder: Path, start: tuple[LanguageModel, Vocabulary]) -> Pretraining:
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
            raise InputError("fine-tuning needs held-out sentences: name a --heldout text")
        return run

    # A run is prepared, and so checked, before the folder is touched.
    if softmax is not None and words is not None:
        run = prepare(output, (LanguageModel(bilm, softmax), words))
        if not resume:
            make_folder(output, config)
    else:
        first = prepare(output / _FIRST, new_model(config, corpus, bilm.requires_grad_(False)))
        if not resume:
            make_folder(output, config)
        start = _learn_softmax(first, files, report)
        del first  # its optimizer, and its best weights
        run = prepare(output, start)
    before = run.evaluate()
    report(before)
    _train(run, report, resume=resume)
    summary = finish(run, files, report, before=before["heldout"], model=provenance)
    shutil.rmtree(output / _FIRST, ignore_errors=True)
    return summary


def _learn_softmax(
    run: Pretraining, files: Sequence[Path], report: Report
) -> tuple[LanguageModel, Vocabulary]:
    """Return the language model of a run that trains the softmax alone, complete or not yet."""
    if not (run.folder / CONFIG).exists():
        report({"note": "no softmax comes with these weights: it is learned first"})
        begun = run.folder.exists()
        if not begun:
            make_folder(run.folder, run.config)
        _train(run, report, resume=begun)
        finish(run, files, report)
        report({"note": "the softmax is learned; now the biLM goes on learning too"})
    model, vocabulary, _ = read_language_model(run.folder)
    return model, vocabulary


def _train(run: Pretraining, report: Report, *, resume: bool) -> None:
    run.start_from_here()  # these weights may turn out to be the best
    train(run, report, resume=resume)


def read_finetune_config(changes: Sequence[str] = ()) -> PretrainConfig:
    """Return the settings of a fine-tuning: its defaults, and changes on top of them."""
    sizes = [change for change in changes if change.startswith("bilm.")]
    if sizes:
        raise InputError(f"--set {sizes[0]}: a fine-tuned model has the sizes it had before")
    sections = {"training": asdict(TRAINING), "run": asdict(RUN)}
    return read_settings(PretrainConfig, None, changes, sections)
