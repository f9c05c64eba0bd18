"""Files of word vectors: GloVe and word2vec text, word2vec binary, npz.

K words, D dim.
"""

import zipfile
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Float32

from elmore.errors import InputError
from elmore.text.lines import open_bytes, read_lines

MAX_WORDS = 400_000
"""So many words of a file are read; files have the frequent ones first."""


class WordVectors(NamedTuple):
    """Words, and a vector for each."""

    words: list[str]
    vectors: Float32[np.ndarray, "K D"]


def read_word_vectors(path: Path, *, max_words: int = MAX_WORDS) -> WordVectors:
    """Read a file of word vectors: .npz (`words`, `vec`), .bin, or text, compressed or not."""
    if path.suffix == ".npz":
        found = _read_npz(path)
    elif path.suffix == ".bin":
        found = _read_binary(path, max_words)
    else:
        found = _read_text(path, max_words)
    if not len(found.words):
        raise InputError(f"{path} holds no word vectors")
    return WordVectors(found.words[:max_words], found.vectors[:max_words])


def _read_npz(path: Path) -> WordVectors:
    try:
        with np.load(path, allow_pickle=False) as file:
            words, vectors = file["words"], file["vec"]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected the arrays `words` and `vec` ({error})") from error
    # One newline-joined string takes a fraction of the room of an array of strings.
    listed = str(words).split("\n") if words.ndim == 0 else [str(word) for word in words]
    if vectors.ndim != 2 or len(listed) != len(vectors):
        raise InputError(f"{path} has {len(listed)} words and vectors of shape {vectors.shape}")
    return WordVectors(listed, vectors.astype(np.float32))


def _read_binary(path: Path, max_words: int) -> WordVectors:
    with open_bytes(path) as file:
        count, dim = _header(file.readline(), path)
        count = min(count, max_words)
        words, vectors = [], np.empty((count, dim), np.float32)
        for row in range(count):
            words.append(_read_word(file, path))
            raw = file.read(4 * dim)
            if len(raw) < 4 * dim:
                raise InputError(f"{path} ends after {row} of {count} words")
            vectors[row] = np.frombuffer(raw, "<f4")
    return WordVectors(words, vectors)


def _header(line: bytes, path: Path) -> tuple[int, int]:
    try:
        count, dim = map(int, line.split())
    except ValueError as error:
        raise InputError(
            f"{path}: expected a first line `words dimensions`, as word2vec writes"
        ) from error
    return count, dim


def _read_word(file: BinaryIO, path: Path) -> str:
    """Read up to the space that ends a word."""
    letters = bytearray()
    while (letter := file.read(1)) != b" ":
        if not letter:
            raise InputError(f"{path} ends within a word")
        letters += letter
    return letters.decode("utf-8", "replace").lstrip("\n")


def _read_text(path: Path, max_words: int) -> WordVectors:
    lines = enumerate(read_lines(path, replace_invalid=True), 1)
    rows = (row for row in lines if row[0] > 1 or len(row[1].split()) != 2)  # GloVe has no header
    words: list[str] = []
    vectors: list[np.ndarray] = []
    for number, line in islice(rows, max_words):
        dim = len(vectors[0]) if vectors else max(1, len(line.split()) - 1)
        # From the right: a word may hold spaces.
        word, *numbers = line.rstrip().rsplit(" ", dim)
        try:
            vector = np.array(numbers, np.float32)
        except ValueError:
            vector = np.empty(0, np.float32)
        if len(vector) != dim:
            raise InputError(
                f"{path}, line {number}: expected a word and {dim} numbers, got {line!r:.60}"
            )
        words.append(word)
        vectors.append(vector)
    return WordVectors(words, np.stack(vectors) if vectors else np.empty((0, 0), np.float32))
