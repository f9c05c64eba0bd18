"""Pretrained word vectors that the tasks of a package share, stored once beside their folders.

DIR/words.json            the words
DIR/vectors.safetensors   their vectors
DIR/NAME/                 a task, which uses them for all words without a trained vector of its own
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32

from elmore.atomic import write_text
from elmore.checkpoint.directory import Dtype, compress, read_weights, save_tensors
from elmore.errors import InputError
from elmore.schema import from_mapping, read_json
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordIndex

WORDS, VECTORS = "words.json", "vectors.safetensors"
_NAME = "vectors"
"""Name of the vectors in their file."""


class SharedVectors:
    """The pretrained vectors of tasks that were trained with the same file of word vectors.

    A task lacks the pretrained vectors of words that it has a trained vector for, so together the
    tasks may have more of the file than each of them.
    """

    def __init__(self) -> None:
        self.words: list[str] = []
        """All words, in the order of the file."""

        self._vectors: dict[str, bytes] = {}
        self._trained: dict[str, set[str]] = {}
        """Words with a trained vector, by the name of the task."""

    def __contains__(self, task: str) -> bool:
        return task in self._trained

    def add(self, task: str, index: WordIndex, known: Float32[np.ndarray, "K D"]) -> None:
        """Let a task share its vectors, unless it was trained with another file.

        It was if a word has another vector, or has none although the task does not train it.

        Args:
            task: The name of the task.
            index: Its words.
            known: The vectors of `index.known`.
        """
        own: dict[str, bytes] = {}
        for word, vector in zip(index.known, known, strict=True):
            own.setdefault(word, vector.tobytes())  # the first of duplicates, as in `WordIndex`
        trained = set(index.new)
        is_same_file = (
            all(self._vectors.get(word, vector) == vector for word, vector in own.items())
            and self._vectors.keys() - own.keys() <= trained
            and all(own.keys() - self._vectors.keys() <= other for other in self._trained.values())
            and len({len(vector) for vector in (*own.values(), *self._vectors.values())}) == 1
        )
        if is_same_file:
            self.words = _merge(self.words, list(own))
            self._vectors |= own
            self._trained[task] = trained

    def save(self, words: Sequence[str], folder: Path, *, dtype: Dtype) -> None:
        """Write some of the words and their vectors."""
        write_text(folder / WORDS, json.dumps({"words": list(words)}, ensure_ascii=False))
        rows = np.frombuffer(b"".join(self._vectors[word] for word in words), np.float32)
        vectors = torch.from_numpy(rows.reshape(len(words), -1).copy())
        save_tensors(compress({_NAME: vectors}, dtype), folder / VECTORS)


def _merge(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """Merge two parts of a list, each in the order of the list."""
    known = set(words)
    before: dict[str, list[str]] = {}
    added: list[str] = []
    for word in others:
        if word in known:
            before[word], added = added, []
        else:
            added.append(word)
    return [w for word in words for w in (*before.get(word, ()), word)] + added


@dataclass(frozen=True, kw_only=True, slots=True)
class _SharedWords:
    """The contents of words.json."""

    words: tuple[str, ...]


def read_shared_vectors(folder: Path, trained: Collection[str]) -> WordVectors:
    """Return the vectors that the tasks in a folder share, except those of `trained` words.

    Raises:
        InputError: If a file is missing or damaged.
    """
    if missing := [name for name in (WORDS, VECTORS) if not (folder / name).is_file()]:
        raise InputError(
            f"{folder / missing[0]}: no such file. The tasks of a package share their word "
            "vectors; copy the folder of the package, not that of a task."
        )
    contents = read_json(folder / WORDS, "the words that the tasks of a package share")
    words = from_mapping(_SharedWords, contents, str(folder / WORDS)).words
    vectors = dict(read_weights([folder / VECTORS])).get(_NAME)
    if vectors is None or vectors.ndim != 2 or len(vectors) != len(words):
        shape = None if vectors is None else tuple(vectors.shape)
        raise InputError(
            f"{folder} is damaged: {WORDS} has {len(words)} words, and {VECTORS} has vectors of "
            f"shape {shape}; expected one vector per word. Install the package again."
        )
    without = set(trained)
    rows = [row for row, word in enumerate(words) if word not in without]
    return WordVectors([words[row] for row in rows], vectors.float().numpy()[rows])
