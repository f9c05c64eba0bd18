"""Trained tasks: assembled, saved to a folder, and loaded from it.

DIR/task.json            the task, its labels, its scores
DIR/words.json           the words that have a vector
DIR/model.safetensors    the weights, with the word vectors and without the biLM
DIR/bilm/                the biLM, if it was fine-tuned for the task
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from elmore.atomic import atomic_file
from elmore.checkpoint.directory import save_tensors
from elmore.embedder import Embedder, find_device, load
from elmore.errors import InputError
from elmore.tasks import get_task
from elmore.tasks.config import ElmoConfig, TaskConfig
from elmore.tasks.domain import FOLDER
from elmore.tasks.fit import predict
from elmore.tasks.layers import LayerCache
from elmore.tasks.task import Labels, Task, TaskModel
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words
from elmore.training.run_folder import RunFolder
from elmore.training.settings import read_settings

TASK = "task.json"
_WORDS, _WEIGHTS = "words.json", "model.safetensors"
_FROZEN_VECTORS = "words.table.known"
"""Name of the frozen word vectors in the weight file."""


class TrainedTask(NamedTuple):
    """A task with its model."""

    task: Task[Any, Any, Any]
    config: TaskConfig
    labels: Labels
    model: TaskModel[Any, Any]
    encode: WordEncoder

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Return one prediction per example."""
        return predict(self.task, self.model, examples, self.encode, self.labels)

    def evaluate(self, examples: Sequence[Any] | Path | str) -> dict[str, float]:
        """Return the scores on labeled examples, or on a file of them."""
        if isinstance(examples, Path | str):
            path = Path(examples)
            examples = require_examples(self.task.read(path, self.config), [path])
        return self.task.score(examples, self.predict(examples))

    def save_model(self, folder: Path) -> None:
        """Write the words and the weights."""
        index = self.encode.index
        with atomic_file(folder / _WORDS) as temporary:
            words = {"new": index.new, "known": index.known}
            temporary.write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
        weights = {**self.model.state_dict(), _FROZEN_VECTORS: self.model.words.table.known}
        weights = {name: x.detach().cpu().contiguous() for name, x in weights.items()}
        save_tensors(weights, folder / _WEIGHTS)


def load_task(
    folder: Path | str,
    *,
    task: Task[Any, Any, Any] | None = None,
    device: str = "auto",
    bilm: str | None = None,
) -> TrainedTask:
    """Load a trained task.

    Args:
        folder: A folder written by `train_task` or `elmore train`.
        task: The task, if it is not one of `elmore.tasks.TASKS`.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        bilm: Path of the biLM, if it has moved since training.

    Raises:
        InputError: If the folder holds no trained task, or the biLM does not fit it.
    """
    folder = Path(folder)
    if not (folder / TASK).is_file():
        raise InputError(
            f"{folder} holds no trained task; expected a folder written by `elmore train`"
        )
    facts = json.loads((folder / TASK).read_text(encoding="utf-8"))
    task = task or get_task(facts["task"])
    config = read_settings(task.config, RunFolder(folder, TASK).settings)
    words = json.loads((folder / _WORDS).read_text(encoding="utf-8"))
    index = WordIndex(words["new"], words["known"])
    try:
        weights = load_file(folder / _WEIGHTS)
    except (SafetensorError, FileNotFoundError) as error:
        raise InputError(f"{folder / _WEIGHTS} is missing or damaged ({error})") from error
    frozen = WordVectors(index.known, weights.pop(_FROZEN_VECTORS).numpy())
    finetuned = str(folder / FOLDER) if config.elmo.finetune else None
    embedder = load_bilm(config.elmo, device, bilm or finetuned)
    trained = assemble(task, config, index, frozen, facts["labels"], embedder, find_device(device))
    try:
        trained.model.load_state_dict(weights)
    except RuntimeError as error:
        detail = str(error).splitlines()[-1].strip()  # there is one line per weight
        raise InputError(
            f"{folder} was trained with another biLM, or by another version: {detail}"
        ) from error
    trained.model.eval()
    return trained


def assemble(
    task: Task[Any, Any, Any],
    config: TaskConfig,
    index: WordIndex,
    vectors: WordVectors,
    labels: Labels,
    embedder: Embedder | None,
    device: torch.device,
) -> TrainedTask:
    """Build a task's model with random weights, and the encoder of its input."""
    words = Words(
        config.words,
        config.elmo,
        index,
        vectors,
        num_layers=embedder.num_layers if embedder else 0,
        elmo_dim=embedder.dim if embedder else 0,
    )
    model = task.build(config, words, labels).to(device)
    encode = WordEncoder(
        index,
        LayerCache(embedder) if embedder else None,
        with_characters=config.words.char_filters > 0,
        device=device,
    )
    return TrainedTask(task, config, labels, model, encode)


def load_bilm(config: ElmoConfig, device: str, model: str | None = None) -> Embedder | None:
    """Load `model`, or the biLM that the settings name; return None for a baseline."""
    if config.place == "none":
        return None
    return load(model or config.model, device=device, precision=config.precision)


def require_examples(examples: list[Any], files: Iterable[Path]) -> list[Any]:
    """Return the examples; raise `InputError` if there are none."""
    if not examples:
        raise InputError(f"no examples in {', '.join(map(str, files))}")
    return examples
