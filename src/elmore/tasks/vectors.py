"""Files of word vectors: GloVe and word2vec text, word2vec binary, npz.

K words, D dim.
"""

import re
import zipfile
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Float32

from elmore.errors import InputError
from elmore.text.lines import open_bytes, read_lines

MAX_WORDS = 400_000
"""Maximum number of words to read; files list frequent words first."""


MAX_DIM = 10_000
"""Maximum dimension of word vectors; more is a mistake or a damaged file."""


class WordVectors(NamedTuple):
    """Words and their vectors."""

    words: list[str]
    vectors: Float32[np.ndarray, "K D"]


def read_word_vectors(path: Path, *, max_words: int = MAX_WORDS) -> WordVectors:
    """Read a file of word vectors.

    Args:
        path: .npz with the arrays `words` and `vec`, word2vec .bin, or text. Text and .bin files
            may be compressed.
        max_words: Read only the first words of the file.

    Raises:
        InputError: If the file is damaged, empty or in another format.
    """
    if path.suffix == ".npz":
        words, vectors = _read_npz(path)
    elif path.suffix == ".bin":
        words, vectors = _read_binary(path, max_words)
    else:
        words, vectors = _read_text(path, max_words)
    if not words:
        raise InputError(f"{path} holds no word vectors")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        word = words[int(finite.argmin())]
        raise InputError(f"{path}: the vector of {word!r:.40} contains NaN or infinity")
    return WordVectors(words[:max_words], vectors[:max_words])


def _read_npz(path: Path) -> WordVectors:
    try:
        with np.load(path, allow_pickle=False) as file:
            words, vectors = file["words"], file["vec"]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected the arrays `words` and `vec` ({error})") from error
    # `words` is an array of strings or, which takes far less space, one string with newlines.
    word_list = str(words).split("\n") if words.ndim == 0 else [str(word) for word in words]
    if vectors.ndim != 2 or len(word_list) != len(vectors):
        raise InputError(
            f"{path}: expected one vector per word, got {len(word_list)} words and vectors of "
            f"shape {vectors.shape}"
        )
    return WordVectors(word_list, vectors.astype(np.float32))


def _read_binary(path: Path, max_words: int) -> WordVectors:
    with open_bytes(path) as file:
        count, dim = _header(file.readline(), path)
        count = min(count, max_words)
        words: list[str] = []
        vectors: list[np.ndarray] = []  # not allocated at once: the header may be wrong
        for row in range(count):
            words.append(_read_word(file, path))
            raw = file.read(4 * dim)
            if len(raw) < 4 * dim:
                raise InputError(f"{path} is truncated: it ends after {row} of {count} words")
            vectors.append(np.frombuffer(raw, "<f4"))
    return WordVectors(words, _stack(vectors))


def _header(line: bytes, path: Path) -> tuple[int, int]:
    try:
        count, dim = map(int, line.split())
        if count < 0 or not 1 <= dim <= MAX_DIM:
            raise ValueError(f"{count} words, {dim} dimensions")
    except ValueError as error:
        raise InputError(
            f"{path}: expected the number of words and of dimensions, at most {MAX_DIM}, in the "
            f"first line, as word2vec writes it, got {line!r:.60}"
        ) from error
    return count, dim


def _read_word(file: BinaryIO, path: Path) -> str:
    """Read a word, which ends with a space."""
    word = bytearray()
    while (byte := file.read(1)) != b" ":
        if not byte:
            raise InputError(f"{path} is truncated: it ends within a word")
        word += byte
    return word.decode("utf-8", "replace").lstrip("\n")


def _read_text(path: Path, max_words: int) -> WordVectors:
    count = 0  # GloVe has no header
    words: list[str] = []
    vectors: list[np.ndarray] = []
    for number, line in enumerate(read_lines(path, replace_invalid=True), 1):
        if number == 1 and re.fullmatch(r"\d+\s+\d+", line.strip()):
            count = int(line.split()[0])
            continue
        if len(words) == max_words:
            break
        dim = len(vectors[0]) if vectors else max(1, len(line.split()) - 1)
        # Split from the right: a word may contain spaces.
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
    if len(words) < min(count, max_words):
        raise InputError(f"{path} is truncated: it ends after {len(words)} of {count} words")
    return WordVectors(words, _stack(vectors))


def _stack(vectors: list[np.ndarray]) -> Float32[np.ndarray, "K D"]:
    return np.stack(vectors, dtype=np.float32) if vectors else np.empty((0, 0), np.float32)
