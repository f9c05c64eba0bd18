"""Trained tasks on disk: saved to a folder, and loaded from it.

DIR/task.json            the task, its labels, its scores
DIR/words.json           the words that have a vector
DIR/model.safetensors    the weights, with the word vectors and without the biLM
DIR/bilm/                the biLM, if it was fine-tuned for the task

The tasks of a package may lack pretrained word vectors: see `elmore.tasks.shared_vectors`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from elmore.atomic import atomic_file
from elmore.checkpoint.directory import (
    Dtype,
    compress,
    decompress,
    read_weights,
    save_tensors,
)
from elmore.checkpoint.hash import hash_json, hash_weights
from elmore.checkpoint.locate import TASK
from elmore.checkpoint.pretrained import find_model
from elmore.device import find_device
from elmore.embedder import Embedder, Precision
from elmore.embedder import load as load_embedder
from elmore.errors import InputError
from elmore.schema import from_mapping, read_json
from elmore.tasks import get_task
from elmore.tasks.config import ElmoConfig
from elmore.tasks.domain import FOLDER
from elmore.tasks.encoder import Encoder
from elmore.tasks.installed import find_task
from elmore.tasks.shared_vectors import read_shared_vectors
from elmore.tasks.task import Labels, Task
from elmore.tasks.trained import TrainedTask, assemble
from elmore.tasks.transformer import TransformerEncoder, is_transformer
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordIndex
from elmore.training.run_folder import RunFolder
from elmore.training.settings import read_settings, read_toml

WORDS, WEIGHTS = "words.json", "model.safetensors"
_FROZEN_VECTORS = "words.table.known"
"""Name of the frozen word vectors in the weight file."""


def save_model(
    trained: TrainedTask, folder: Path, *, dtype: Dtype = "float32", shares_vectors: bool = False
) -> str:
    """Write the words and the weights; return the hash of the trained task, for task.json.

    The settings must have been written.

    Args:
        trained: The trained task.
        folder: Its folder.
        dtype: Type of the weights in the file.
        shares_vectors: Leave out the frozen word vectors, which the tasks of the package share.
    """
    index = trained.encode.index
    words = {"new": index.new} if shares_vectors else {"new": index.new, "known": index.known}
    with atomic_file(folder / WORDS) as temporary:
        temporary.write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
    weights = {**trained.model.state_dict(), _FROZEN_VECTORS: trained.model.words.table.known}
    stored = compress(weights, dtype)
    content_hash = _hash(folder, trained.labels, index, decompress(stored))
    if shares_vectors:
        stored = {k: v for k, v in stored.items() if not k.startswith(_FROZEN_VECTORS)}
    save_tensors(stored, folder / WEIGHTS)
    return content_hash


def load(
    folder: Path | str,
    *,
    task: str | Task[Any, Any, Any] | None = None,
    device: str = "auto",
    bilm: Path | str | Embedder | None = None,
    precision: Precision | None = None,
) -> TrainedTask:
    """Load a trained task.

    Args:
        folder: A folder written by `train_task` or `elmore train`; or the name of an installed
            task, such as `en/ner`.
        task: A task of your own, or its `module:name`. Required for a run that was trained with
            one, because loading a folder never imports code that the folder names.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        bilm: Path of the biLM, if it has moved since training; or the biLM itself, so that several
            tasks share one.
        precision: Precision of the biLM, `fp32`, `bf16` or `int8`; by default that of the training.

    Raises:
        InputError: If the folder holds no trained task, or the biLM does not fit it.
    """
    if not isinstance(folder, PathLike | str):
        raise TypeError(f"expected the folder of a trained task, got {type(folder).__name__}")
    if not isinstance(bilm, PathLike | str | Embedder | None):
        raise TypeError(f"bilm: expected the path of a biLM, got {type(bilm).__name__}")
    folder = find_task(folder)
    facts = _read_facts(folder / TASK)
    if task is None and ":" in (trained_with := facts["task"]):
        raise InputError(
            f"{folder} was trained with a task of yours, {trained_with}; pass it as task (--task "
            "on the command line), if you trust it"
        )
    task = task or facts["task"]
    task = get_task(task) if isinstance(task, str) else task
    config = read_settings(task.config, RunFolder(folder, TASK).settings)
    saved_words = read_json(folder / WORDS, "the words of a task")
    words = from_mapping(_SavedWords, saved_words, str(folder / WORDS))
    try:
        weights = {name: value.float() for name, value in read_weights([folder / WEIGHTS])}
    except InputError as error:
        raise InputError(f"{folder / WEIGHTS} is missing or damaged ({error})") from error
    if words.known is None:
        known = read_shared_vectors(folder.resolve().parent, words.new)
    else:
        known = _frozen_vectors(folder, words.known, weights.pop(_FROZEN_VECTORS, None))
    index = WordIndex(words.new, known.words)
    if isinstance(bilm, PathLike | str) and config.elmo.place == "none":
        raise InputError(f"{folder} is a baseline, so it cannot use the biLM {bilm}")
    if precision and config.elmo.place == "none":
        raise InputError(f"{folder} is a baseline, so it has no biLM to run in {precision}")
    finetuned = str(folder / FOLDER) if config.elmo.finetune else None
    bilm = bilm or finetuned
    if config.elmo.place != "none" and not bilm and not _exists(config.elmo.model):
        raise InputError(
            f"{folder} needs the biLM that it was trained with, {config.elmo.model}, which "
            + (
                "does not exist; if the biLM has moved, pass its new path"
                if Path(config.elmo.model).is_absolute()
                else "is not installed; install its package with pip, or pass the path of the biLM"
            )
        )
    embedder: Encoder | None
    if isinstance(bilm, Embedder):
        embedder = bilm if config.elmo.place != "none" else None
    else:
        embedder = load_bilm(config.elmo, device, bilm, precision)
    expected = facts.get("bilm")  # not in tasks of older versions
    if embedder and expected and embedder.weights_hash != expected:
        raise InputError(
            f"{folder} was trained with another biLM than {bilm or config.elmo.model}: the hash of "
            f"its weights was {expected}, not {embedder.weights_hash}. Load the task with the biLM "
            "it was trained with."
        )
    labels = facts["labels"]
    frozen = torch.from_numpy(known.vectors)
    actual_hash = _hash(folder, labels, index, {**weights, _FROZEN_VECTORS: frozen})
    if facts.get("hash") not in (None, actual_hash):
        raise InputError(
            f"{folder} is damaged: settings, labels ({TASK}), words ({WORDS}), weights ({WEIGHTS}) "
            "or word vectors differ from those that elmore wrote. Copy the folder again, with its "
            "package if it is part of one, or train again. If you changed the settings yourself, "
            f"delete hash from {TASK}."
        )
    try:
        trained = assemble(task, config, index, known, labels, embedder, find_device(device))
    except KeyError as error:
        raise InputError(f"{folder / TASK} is damaged: it has no labels {error}") from error
    try:
        trained.model.load_state_dict(weights)
    except RuntimeError as error:
        detail = str(error).splitlines()[-1].strip()  # there is one line per weight
        raise InputError(
            f"{folder} was trained with another biLM, or by another version: {detail}"
        ) from error
    trained.model.eval()
    return trained


load_task = load


def read_bilm_hash(folder: Path | str) -> str | None:
    """Return the hash of the biLM that a task was trained with; None for a baseline."""
    return _read_facts(find_task(folder) / TASK).get("bilm")


@dataclass(frozen=True, kw_only=True, slots=True)
class _SavedWords:
    """The contents of words.json; see `WordIndex`."""

    new: tuple[str, ...]
    known: tuple[str, ...] | None = None
    """None if the tasks of a package share these words."""


def _frozen_vectors(
    folder: Path, words: Sequence[str], vectors: torch.Tensor | None
) -> WordVectors:
    if vectors is None or vectors.ndim != 2 or len(vectors) != len(words):
        shape = None if vectors is None else tuple(vectors.shape)
        raise InputError(
            f"{folder} is damaged: {WORDS} has {len(words)} words with frozen vectors, and "
            f"{WEIGHTS} has vectors of shape {shape}; expected one vector per word"
        )
    return WordVectors(list(words), vectors.numpy())


def _hash(
    folder: Path, labels: Labels, index: WordIndex, weights: Mapping[str, torch.Tensor]
) -> str:
    """Return a hash of what predictions depend on, except the biLM, which has its own."""
    settings = read_toml(RunFolder(folder, TASK).settings)
    settings.get("elmo", {}).pop("model", None)  # the biLM may move
    return hash_json([settings, labels, [index.new, index.known], hash_weights(weights)])


def _read_facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f"{path.parent} holds no trained task; expected a folder written by `elmore train`"
        )
    facts = read_json(path, "a trained task")
    labels = facts.get("labels")
    has_labels = isinstance(labels, dict) and all(map(_is_list_of_strings, labels.values()))
    if not isinstance(facts.get("task"), str) or not has_labels:
        raise InputError(f"{path} is damaged: expected the name of a task and its labels")
    return facts


def _exists(model: str) -> bool:
    try:
        return find_model(model).exists()
    except InputError:  # not on the Hugging Face Hub either
        return False


def _is_list_of_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def load_bilm(
    config: ElmoConfig,
    device: str,
    model: Path | str | None = None,
    precision: Precision | None = None,
) -> Encoder | None:
    """Load `model`, or the biLM that the settings name; return None for a baseline.

    The folder of a transformer is accepted, too.
    """
    if config.place == "none":
        return None
    source, precision = model or config.model, precision or config.precision
    path = find_model(source)
    if is_transformer(path):
        return TransformerEncoder(path, device=device, precision=precision)
    return load_embedder(source, device=device, precision=precision)
