"""Training of a task: reads the files, trains the model and writes the trained task.

DIR/config.toml metrics.jsonl checkpoints/   see `elmore.training.run_folder`
DIR/data.json                                identity of the training, dev and test files
DIR/metrics.json curves.png                  results of the run
DIR/...                                      the trained task, see `elmore.tasks.saved`
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

import elmore
from elmore.atomic import lock
from elmore.checkpoint.locate import TASK
from elmore.device import find_device
from elmore.errors import InputError
from elmore.mix import ScalarMix
from elmore.progress import show_line, with_progress
from elmore.schema import POSITIVE_OR_INF, check, read_json, write_json
from elmore.signals import InterruptedRunError, interruption
from elmore.tasks import get_task
from elmore.tasks.config import ElmoConfig, TaskConfig, WordsConfig
from elmore.tasks.domain import FOLDER, domain_text, finetune_bilm
from elmore.tasks.files import Examples, TaskFiles, check_path, read_examples
from elmore.tasks.fit import Fit
from elmore.tasks.labels import check_classes, check_labels
from elmore.tasks.layers import LayerCache
from elmore.tasks.saved import WEIGHTS, WORDS, load_bilm, save_model
from elmore.tasks.show import show_epoch
from elmore.tasks.task import Labels, Task, TaskModel
from elmore.tasks.time_limit import TimeLimit
from elmore.tasks.trained import TrainedTask, assemble
from elmore.tasks.vectors import WordVectors, read_word_vectors
from elmore.tasks.words import WordIndex
from elmore.text.sentences import Sentence
from elmore.training.plots import plot_task
from elmore.training.run_folder import Report, RunFolder, hardware_name
from elmore.training.settings import read_settings

_DATA, _SUMMARY, _PLOT = "data.json", "metrics.json", "curves.png"
_MAX_CACHED = 250_000
"""Sentences whose rows are cached, because they repeat in every epoch."""


def read_task_config(
    task: str, recipe: Path | None = None, changes: Sequence[str] = ()
) -> TaskConfig:
    """Return the settings of a task.

    Args:
        task: Name of the task, see `elmore.tasks.get_task`.
        recipe: TOML file that overrides the task's defaults.
        changes: Settings on top of that, such as `training.lr=1e-3`.
    """
    config = get_task(task).config
    return read_settings(config, recipe, changes, base=config())


def train_task(
    task: str | Task[Any, Any, Any],
    output: Path | str,
    *,
    train: Sequence[Path | str] | Path | str,
    dev: Path | str,
    test: Sequence[Path | str] | Path | str | None = None,
    config: TaskConfig | None = None,
    max_minutes: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    progress: bool = True,
    report: Report = lambda _: None,
) -> dict[str, Any]:
    """Train a task, write it to a folder, and return a summary with its scores.

    Args:
        task: Name of a task, see `elmore.tasks.get_task`; or a task of your own, which must then be
            passed to `elmore.tasks.load`, too.
        output: Folder for the model and the run.
        train: Training file or files.
        dev: Dev set, used for early stopping and to select the best weights.
        test: Test set or sets, scored once after training. The scores of the first are called
            `test`, those of others by the name of their file.
        config: Settings; the task's defaults if not given.
        max_minutes: Stop before the first epoch that would end after this many minutes since the
            start, which include reading the files and the biLM pass. Such a run can be resumed.
            None and infinity mean no limit.
        resume: Resume a run that was interrupted or stopped by `max_minutes`.
        overwrite: Replace an earlier run in `output`.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        progress: Print the metrics of each epoch, and show the progress of the biLM pass.
        report: Receives metrics and messages while training; see `Report`.

    Raises:
        InputError: If the input is invalid, or `max_minutes` is too short for one epoch.
        InterruptedRunError: If a signal stopped the run. The message says how to continue.
    """
    check("max_minutes", max_minutes, POSITIVE_OR_INF, optional=True)
    limit = TimeLimit(max_minutes)
    if not isinstance(task, str | Task):
        raise TypeError(f"task: expected a name or a Task, got {task!r:.60}")
    name = task if isinstance(task, str) else task.name
    task = get_task(task) if isinstance(task, str) else task
    if not isinstance(config, task.config | None):
        raise TypeError(f"expected a {task.config.__name__} as config, got {type(config).__name__}")
    config = _with_absolute_paths(config or task.config())
    files = TaskFiles.of(train, dev, test)
    report = _print_and(report) if progress else report
    folder = RunFolder(
        Path(check_path("output", output)), TASK, (_DATA, _SUMMARY, _PLOT, WORDS, WEIGHTS, FOLDER)
    )
    with lock(folder.path), folder.explain_interruption(resume=resume):
        if not (resume and _was_cut_short(folder)):
            inputs = (
                *files.train,
                files.dev,
                *files.tests,
                config.words.vectors,
                config.elmo.model,
            )
            folder.check(resume=resume, overwrite=overwrite, inputs=inputs)
        return _run(
            name,
            task,
            config,
            files,
            folder,
            limit,
            resume=resume,
            device=device,
            progress=progress,
            report=report,
        )


def _run(
    name: str,
    task: Task[Any, Any, Any],
    config: TaskConfig,
    files: "TaskFiles",
    folder: RunFolder,
    limit: TimeLimit,
    *,
    resume: bool,
    device: str,
    progress: bool,
    report: Report,
) -> dict[str, Any]:
    # Everything that can fail because of the input comes before the folder is created.
    torch_device = find_device(device)
    embedder = load_bilm(config.elmo, device)
    config = task.with_bilm_language(config, embedder.tokenization if embedder else None)
    if resume:
        saved = read_settings(type(config), folder.settings)
        folder.require_settings(_relevant(saved), _relevant(config))
    data = files.identity(config.words) | {"bilm": embedder.weights_hash if embedder else None}
    if resume:
        _check_data(folder, data)
    examples = read_examples(task, config, files)
    text = domain_text(task, files.train, config) if embedder and config.elmo.finetune else []
    vectors = _read_vectors(config.words)
    labels = _check_labels(task, files, examples, report)
    if not resume:
        folder.create(config, {_DATA: data})
    if text:
        finetuned = finetune_bilm(
            config.elmo.model,
            text,
            folder.path,
            max_minutes=limit.seconds / 120,
            device=device,
            report=report,
        )
        embedder = load_bilm(config.elmo, device, str(finetuned))
    index = WordIndex.from_sentences(
        (s for example in examples.train for s in task.vocabulary_texts(example)),
        vectors.words,
        min_count=config.words.min_count,
        train=config.words.train,
    )
    torch.manual_seed(config.training.seed)
    trained = assemble(
        task, config, index, vectors, labels, embedder, torch_device, max_cached=_MAX_CACHED
    )
    if trained.encode.layers is not None:
        parts = (examples.train, examples.dev, *examples.tests)
        sentences = (s for part in parts for example in part for s in task.texts(example))
        _embed(trained.encode.layers, sentences, limit, progress=progress)
    fit = Fit(
        task,
        trained.model,
        config.training,
        encode=trained.encode,
        labels=trained.labels,
        train=examples.train,
        dev=examples.dev,
        folder=folder,
        limit=limit,
    )
    _train(fit, folder, report, resume=resume)
    scores = {"dev": fit.best_scores}
    details: dict[str, Any] = {}
    for name_of_test, test in zip(files.test_names(), examples.tests, strict=True):
        predictions = trained.predict(test)
        scores[name_of_test] = task.score(test, predictions)
        if name_of_test == "test":
            details["by_label"] = task.scores_by_label(test, predictions)
            details["confusion"] = task.confusion_matrix(test, predictions)
    summary = {
        "task": name,
        "scores": scores,
        **{key: table for key, table in details.items() if table},
        "data": data,
        "bilm": embedder.weights_hash if embedder else None,
        "epochs": fit.epoch,
        "cut_short": fit.cut_short,
        "seconds": fit.seconds,
        "total_seconds": limit.elapsed,
        "train_examples": len(examples.train),
        "parameters": sum(p.numel() for p in trained.model.parameters() if p.requires_grad),
        "elmo": _layer_weights(trained.model),
        "hardware": hardware_name(torch_device),
        "elmore": elmore.__version__,
        "torch": torch.__version__,
    }
    _finish(trained, folder, summary, report)
    return summary


def _check_labels(
    task: Task[Any, Any, Any], files: TaskFiles, examples: Examples, report: Report
) -> Labels:
    """Return the labels of the training examples; report labels that make scores misleading."""
    labels = task.labels(examples.train)
    notes = check_classes(task, labels, examples.train)
    notes += check_labels(task, labels, examples.dev, str(files.dev))
    for path, test in zip(files.tests, examples.tests, strict=True):
        notes += check_labels(task, labels, test, str(path))
    for note in notes:
        report({"note": note})
    return labels


def _print_and(report: Report) -> Report:
    """Return a function that prints a record and passes it on to `report`."""

    def print_and_report(record: dict[str, Any]) -> None:
        show_line(show_epoch(record))
        report(record)

    return print_and_report


def _embed(
    layers: LayerCache, sentences: Iterable[Sentence], limit: TimeLimit, *, progress: bool
) -> None:
    """Run the biLM over all sentences."""

    def watch(embedded: Iterator[Sentence], total: int) -> Iterator[Sentence]:
        embedded = limit.require_time(embedded, total, "the biLM pass over all sentences")
        return with_progress(embedded, "sentences embedded", total) if progress else embedded

    layers.prepare(sentences, watch)


def _read_vectors(config: WordsConfig) -> WordVectors:
    if config.vectors:
        return read_word_vectors(Path(config.vectors))
    return WordVectors([], np.zeros((0, config.dim), np.float32))


def _with_absolute_paths(config: TaskConfig) -> TaskConfig:
    """Make the paths of biLM and word vectors absolute, so that they work from any folder."""
    if config.words.vectors:
        vectors = str(Path(config.words.vectors).resolve())
        config = replace(config, words=replace(config.words, vectors=vectors))
    path = Path(config.elmo.model)
    if not path.exists():  # an installed model; a wrong path fails on loading
        return config
    return replace(config, elmo=replace(config.elmo, model=str(path.resolve())))


def _check_data(folder: RunFolder, data: dict[str, Any]) -> None:
    """Raise `InputError` if files or biLM are not those that the run was started with."""
    saved = read_json(folder.path / _DATA, "the data of a run")
    # Older versions recorded neither the word vectors nor the biLM.
    changed = [name for name, now in data.items() if saved.get(name, now) != now]
    if changed:
        raise InputError(
            f"the run in {folder.path} was started with other data ({', '.join(changed)}); resume "
            "it with the same files and the same biLM"
        )


def _was_cut_short(folder: RunFolder) -> bool:
    """Return whether the time limit ended a run whose checkpoints are still there."""
    if not folder.complete or not folder.checkpoints.exists():
        return False
    return read_json(folder.path / TASK, "a trained task").get("cut_short") is True


def _relevant(config: TaskConfig) -> TaskConfig:
    """Ignore the ELMo settings of a baseline, which have no effect."""
    return replace(config, elmo=ElmoConfig(place="none")) if config.elmo.place == "none" else config


def _train(fit: Fit, folder: RunFolder, report: Report, *, resume: bool) -> None:
    """Train until complete."""
    if resume:
        fit.restore(report)
        records = folder.drop_metrics_after("epoch", fit.epoch)
        found = {record["epoch"] for record in records}
        if lost := [epoch for epoch in range(1, fit.epoch + 1) if epoch not in found]:
            report({"note": f"metrics.jsonl has no line of epoch {', '.join(map(str, lost))}"})
    note = {"note": "stopping after this epoch; interrupt again to stop now and lose the epoch"}
    with interruption(lambda: report(note)) as interrupted:
        for record in fit.run(interrupted):
            folder.append_metrics(record)
            report(record)
    if not fit.complete:
        raise InterruptedRunError(f"interrupted after epoch {fit.epoch}; resume to continue")


def _layer_weights(model: TaskModel[Any, Any]) -> dict[str, Any]:
    """Return gamma and the layer weights of each mix (Figure 2)."""
    mixes = cast("dict[str, ScalarMix]", dict(model.words.mixes.items()))
    return {
        place: {"gamma": mix.gamma.item(), "weights": mix.w.softmax(dim=0).tolist()}
        for place, mix in mixes.items()
    }


def _finish(
    trained: TrainedTask, folder: RunFolder, summary: dict[str, Any], report: Report
) -> None:
    """Write the trained task, the plot and the summary; task.json comes last."""
    content_hash = save_model(trained, folder.path)
    try:
        if records := folder.read_metrics("epoch"):  # lost if somebody deleted metrics.jsonl
            plot_task(records, folder.path / _PLOT, trained.task.score_name)
    except Exception as error:  # whatever matplotlib raises, the model is worth more
        report({"note": f"no plot of the learning curves: {error}"})
    write_json(folder.path / _SUMMARY, summary)
    write_json(folder.path / TASK, {**summary, "labels": trained.labels, "hash": content_hash})
    folder.finish(keep_checkpoints=summary["cut_short"])
