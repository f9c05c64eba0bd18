"""Files in, a trained task out; and a trained task, from its folder, to answers.

DIR/config.toml        the run, resolved; data.json names its files
DIR/metrics.jsonl      a line an epoch; curves.png shows them
DIR/checkpoints/       to go on from; gone when the run is complete
DIR/task.json          which task, its labels, its scores
DIR/words.json model.safetensors
DIR/bilm/              the biLM, if it was fine-tuned for the task
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

import elmore
from elmore.atomic import atomic_file, drop_previous, make_way, refuse_existing
from elmore.checkpoint.directory import save_tensors
from elmore.embedder import Embedder, find_device, load
from elmore.errors import InputError, MissingExtraError
from elmore.mix import ScalarMix
from elmore.tasks import get_task
from elmore.tasks.config import ElmoConfig, TaskConfig, WordsConfig
from elmore.tasks.domain import FOLDER, domain_text, finetune_bilm
from elmore.tasks.fit import Fit, predict
from elmore.tasks.layers import LayerTable, Watch
from elmore.tasks.plots import plot_scores
from elmore.tasks.records import (
    file_identity,
    hardware_name,
    read_records,
    write_json,
    write_records,
)
from elmore.tasks.task import Labels, Task, TaskModel
from elmore.tasks.vectors import WordVectors, read_word_vectors
from elmore.tasks.words import WordEncoder, WordIndex, Words
from elmore.training.interruption import InterruptedRunError, interruption
from elmore.training.settings import check_minutes, read_settings, write_settings

TASK, WORDS, WEIGHTS, DATA = "task.json", "words.json", "model.safetensors", "data.json"
KNOWN = "words.table.known"
"""The name of given word vectors among the weights."""

Report = Callable[[dict[str, Any]], None]
"""Told of each epoch."""


def read_task_config(
    task: str, recipe: Path | None = None, changes: Sequence[str] = ()
) -> TaskConfig:
    """Return the settings of a task: its defaults, a TOML file, and changes on top of them."""
    config = get_task(task).config
    return read_settings(config, recipe, changes, base=config())


def train_task(
    task: str | Task[Any, Any, Any],
    output: Path,
    *,
    train: Sequence[Path],
    dev: Path,
    test: Path | None = None,
    config: TaskConfig | None = None,
    max_minutes: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    report: Report = lambda _: None,
    watch: Watch = iter,
) -> dict[str, Any]:
    """Train a task, write it to a folder, and return a summary with its scores.

    Args:
        task: One of `elmore.tasks.TASKS`, or a task of your own.
        output: Folder for the model and the run.
        train: Files of training examples.
        dev: File of examples that decide when to stop and which weights to keep.
        test: File of examples to score once, at the end.
        config: Settings; the task's defaults if not given.
        max_minutes: End the training after so long, the reading of files included.
        resume: Go on with an interrupted run.
        overwrite: Replace what is in `output`.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        report: See `Report`.
        watch: Wraps the stream of sentences while ELMo is computed, to show how far it is.
    """
    deadline = _deadline(max_minutes)
    task = get_task(task) if isinstance(task, str) else task
    config = _with_whole_path(config or task.config())
    _check_folder(output, config, resume=resume, overwrite=overwrite)
    data = {
        "train": [file_identity(path) for path in train],
        "dev": file_identity(dev),
        "test": file_identity(test) if test else None,
    }
    if resume and json.loads((output / DATA).read_text(encoding="utf-8")) != data:
        raise InputError(f"{output} was begun with other data; resume with the same files")
    train_examples = _not_empty(
        [e for path in train for e in task.read(path, config, training=True)], train
    )
    dev_examples = _not_empty(task.read(dev, config), [dev])
    test_examples = _not_empty(task.read(test, config), [test]) if test else []
    # What can be known to be wrong is said before anything is replaced.
    found_device = find_device(device)
    embedder = _load_bilm(config.elmo, device)
    text = domain_text(task, train, config) if embedder and config.elmo.finetune else []
    vectors = _read_vectors(config.words)
    labels = task.labels(train_examples)
    if not resume:
        make_way(output, TASK)
        output.mkdir(parents=True)
        write_settings(config, output / "config.toml")
        write_json(output / DATA, data)
    if text:
        tuned = finetune_bilm(
            config.elmo.model,
            text,
            output,
            max_minutes=max_minutes / 2 if max_minutes is not None else None,
            device=device,
            report=report,
        )
        embedder = _load_bilm(config.elmo, device, str(tuned))
    trained = _new(task, config, train_examples, labels, vectors, embedder, found_device)
    if trained.encode.layers is not None:
        everything = [*train_examples, *dev_examples, *test_examples]
        trained.encode.layers.prepare((s for e in everything for s in task.texts(e)), watch)
    fit = Fit(
        task,
        trained.model,
        config.training,
        encode=trained.encode,
        labels=trained.labels,
        train=train_examples,
        dev=dev_examples,
        folder=output,
        deadline=deadline,
    )
    done = fit.restore() if resume else 0
    records = read_records(output, done)
    patience = {"note": "stops after this epoch; ask again to stop at once, and lose the epoch"}
    with interruption(lambda: report(patience)) as asked:
        for record in fit.run(asked):
            records.append(record)
            write_records(output, records)
            report(record)
    if not fit.complete:
        raise InterruptedRunError(f"stopped after epoch {fit.epoch}; --resume goes on from there")
    scores = {"dev": records[_best(records, task)]["dev"]}
    if test_examples:
        scores["test"] = trained.evaluate(test_examples)
    summary = {
        "task": task.name,
        "scores": scores,
        "data": data,
        "epochs": fit.epoch,
        "cut_short": fit.cut_short,
        "seconds": sum(r["seconds"] + r["dev_seconds"] for r in records),
        "train_examples": len(train_examples),
        "parameters": sum(p.numel() for p in trained.model.parameters() if p.requires_grad),
        "elmo": _mixes(trained.model),
        "hardware": hardware_name(trained.encode.device),
        "elmore": elmore.__version__,
        "torch": torch.__version__,
    }
    _finish(trained, output, summary, records, report)
    drop_previous(output)
    return summary


class TrainedTask(NamedTuple):
    """A task that has learned, ready to answer."""

    task: Task[Any, Any, Any]
    config: TaskConfig
    labels: Labels
    model: TaskModel[Any, Any]
    encode: WordEncoder

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Return an answer for each example."""
        return predict(self.task, self.model, examples, self.encode, self.labels)

    def evaluate(self, examples: Sequence[Any] | Path | str) -> dict[str, float]:
        """Score the answers to examples that come with the right ones."""
        if isinstance(examples, Path | str):
            path = Path(examples)
            examples = _not_empty(self.task.read(path, self.config), [path])
        return self.task.score(examples, self.predict(examples))


def load_task(
    folder: Path | str,
    *,
    task: Task[Any, Any, Any] | None = None,
    device: str = "auto",
    bilm: str | None = None,
) -> TrainedTask:
    """Load a trained task.

    Args:
        folder: Written by `train_task` or `elmore train`.
        task: A task of your own; those of elmore are known by the folder.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        bilm: Where the biLM is, if it has moved since the training.
    """
    folder = Path(folder)
    if not (folder / TASK).is_file():
        raise InputError(
            f"{folder} holds no trained task; expected a folder written by `elmore train`"
        )
    facts = json.loads((folder / TASK).read_text(encoding="utf-8"))
    task = task or get_task(facts["task"])
    config = read_settings(task.config, folder / "config.toml")
    words = json.loads((folder / WORDS).read_text(encoding="utf-8"))
    index = WordIndex(words["new"], words["known"])
    try:
        weights = load_file(folder / WEIGHTS)
    except (SafetensorError, FileNotFoundError) as error:
        raise InputError(f"{folder / WEIGHTS} is not a complete file ({error})") from error
    known = WordVectors(index.known, weights.pop(KNOWN).numpy())
    tuned = str(folder / FOLDER) if config.elmo.finetune else None
    embedder = _load_bilm(config.elmo, device, bilm or tuned)
    trained = _assemble(task, config, index, known, facts["labels"], embedder, find_device(device))
    try:
        trained.model.load_state_dict(weights)
    except RuntimeError as error:
        example = str(error).splitlines()[-1].strip()  # of as many lines as there are weights
        raise InputError(
            f"{folder} was trained with another biLM, or by another version: {example}"
        ) from error
    trained.model.eval()
    return trained


def _new(
    task: Task[Any, Any, Any],
    config: TaskConfig,
    examples: Sequence[Any],
    labels: Labels,
    vectors: WordVectors,
    embedder: Embedder | None,
    device: torch.device,
) -> TrainedTask:
    """Return a task with its first weights."""
    index = WordIndex.of_training(
        (s for example in examples for s in task.texts(example)),
        vectors.words,
        min_count=config.words.min_count,
        train=config.words.train,
    )
    torch.manual_seed(config.training.seed)
    return _assemble(task, config, index, vectors, labels, embedder, device)


def _read_vectors(config: WordsConfig) -> WordVectors:
    if config.vectors:
        return read_word_vectors(Path(config.vectors))
    return WordVectors([], np.zeros((0, config.dim), np.float32))


def _with_whole_path(config: TaskConfig) -> TaskConfig:
    """Name a biLM of one's own so that it is found from anywhere."""
    path = Path(config.elmo.model)
    if not path.exists():  # a model that ships with elmore, or a mistake that is found later
        return config
    return replace(config, elmo=replace(config.elmo, model=str(path.resolve())))


def _load_bilm(config: ElmoConfig, device: str, model: str | None = None) -> Embedder | None:
    if config.place == "none":
        return None
    return load(model or config.model, device=device, precision=config.precision)


def _assemble(
    task: Task[Any, Any, Any],
    config: TaskConfig,
    index: WordIndex,
    known: WordVectors,
    labels: Labels,
    embedder: Embedder | None,
    device: torch.device,
) -> TrainedTask:
    words = Words(
        config.words,
        config.elmo,
        index,
        known,
        num_layers=embedder.num_layers if embedder else 0,
        elmo_dim=embedder.dim if embedder else 0,
    )
    model = task.build(config, words, labels).to(device)
    encode = WordEncoder(
        index,
        LayerTable(embedder) if embedder else None,
        with_characters=config.words.char_filters > 0,
        device=device,
    )
    return TrainedTask(task, config, labels, model, encode)


def _check_folder(folder: Path, config: TaskConfig, *, resume: bool, overwrite: bool) -> None:
    """See that a run can be written there, or go on there, before any work is done."""
    settings = folder / "config.toml"
    if not resume:
        refuse_existing(folder, overwrite=overwrite)
        if folder.is_file() or (
            folder.exists() and not settings.exists() and any(folder.iterdir())
        ):
            raise InputError(f"{folder} is not a run of elmore train, so it is not replaced")
        return
    if (folder / TASK).exists():
        raise InputError(f"the run in {folder} is complete; there is nothing to resume")
    if not settings.exists():
        raise InputError(f"{folder} holds no run to resume; leave out --resume to start one")
    if _deciding(read_settings(type(config), settings)) != _deciding(config):
        raise InputError(f"{settings} has other settings than these; resume with the same ones")


def _deciding(config: TaskConfig) -> TaskConfig:
    """Return the settings without those that change nothing: a baseline has no biLM."""
    return replace(config, elmo=ElmoConfig(place="none")) if config.elmo.place == "none" else config


def _deadline(max_minutes: float | None) -> float:
    check_minutes(max_minutes)
    return math.inf if max_minutes is None else time.monotonic() + 60 * max_minutes


def _not_empty(examples: list[Any], files: Iterable[Path]) -> list[Any]:
    if not examples:
        raise InputError(f"no examples in {', '.join(map(str, files))}")
    return examples


def _best(records: Sequence[dict[str, Any]], task: Task[Any, Any, Any]) -> int:
    """Return which epoch's weights are kept: of equals the newest, as `Fit` has it."""
    return max(range(len(records)), key=lambda i: (records[i]["dev"][task.score_name], i))


def _mixes(model: TaskModel[Any, Any]) -> dict[str, Any]:
    """Return what the mixes have learned: gamma, and the softmax of w (Figure 2)."""
    mixes = cast("dict[str, ScalarMix]", dict(model.words.mixes.items()))
    return {
        place: {"gamma": mix.gamma.item(), "weights": mix.w.softmax(dim=0).tolist()}
        for place, mix in mixes.items()
    }


def _finish(
    trained: TrainedTask,
    folder: Path,
    summary: dict[str, Any],
    records: Sequence[dict[str, Any]],
    report: Report,
) -> None:
    """Write the model and what is known about it; the checkpoints have served."""
    index = trained.encode.index
    with atomic_file(folder / WORDS) as temporary:
        words = {"new": index.new, "known": index.known}
        temporary.write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
    weights = {**trained.model.state_dict(), KNOWN: trained.model.words.table.known}
    save_tensors({k: v.detach().cpu().contiguous() for k, v in weights.items()}, folder / WEIGHTS)
    try:
        plot_scores(records, folder / "curves.png", trained.task.score_name)
    except MissingExtraError as error:
        report({"note": f"no picture of the run: {error}"})
    write_json(folder / "metrics.json", summary)
    write_json(folder / TASK, {**summary, "labels": trained.labels})
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
