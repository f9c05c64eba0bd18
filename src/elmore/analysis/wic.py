"""WiC (Pilehvar and Camacho-Collados, 2019): does a word have the same meaning in two sentences?

The classifier is a threshold on the cosine of the word's two vectors, tuned on the training set.

    train.data.txt   word, part of speech, its index in each sentence, the sentences (tokenized):
                     board <TAB> N <TAB> 2-2 <TAB> Room and board . <TAB> He nailed boards .
    train.gold.txt   T or F for each line: same meaning or not

N pairs.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from elmore.analysis.neighbors import Occurrence
from elmore.analysis.results import Result
from elmore.analysis.word_pairs import WordPair, pair_similarities
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.lines import read_lines

_PARTS = ("train", "dev", "test")
WIC_FILES = tuple(f"**/{part}.{kind}.txt" for part in _PARTS for kind in ("data", "gold"))
"""Files below the folder of the dataset."""

_COLUMNS = 5
_INDICES = re.compile(r"(\d+)-(\d+)")


class WicSet(NamedTuple):
    """Pairs of the same word, and whether it has the same meaning."""

    pairs: list[WordPair]
    same: Bool[np.ndarray, " N"]


def measure_wic(embedder: Embedder, files: Sequence[Path]) -> Result:
    """Return the accuracy in percent of each layer, with a threshold tuned on the training set.

    Args:
        embedder: The model.
        files: The files in the order of `WIC_FILES`.
    """
    sets = {
        part: read_wic(data, gold)
        for part, data, gold in zip(_PARTS, files[::2], files[1::2], strict=True)
    }
    similarities = {part: pair_similarities(embedder, sets[part].pairs) for part in sets}
    scores, thresholds = {}, {}
    for row, training in similarities["train"].items():
        thresholds[row] = best_threshold(training, sets["train"].same)
        scores[row] = {
            part: 100 * float(np.mean((similarities[part][row] >= thresholds[row]) == same))
            for part, (_, same) in sets.items()
        }
    return Result(
        scores,
        {"pairs": {part: len(same) for part, (_, same) in sets.items()}, "thresholds": thresholds},
    )


def best_threshold(similarities: Float[np.ndarray, " N"], same: Bool[np.ndarray, " N"]) -> float:
    """Return the threshold with the best accuracy if pairs at or above it are predicted as same.

    It lies halfway between two of the similarities; -1 predicts all pairs as same, 2 none. Of
    several equally good thresholds, the lowest is returned.
    """
    values, index = np.unique(similarities, return_inverse=True)
    # With the threshold above value v, pairs up to v are predicted as different. Compared with
    # predicting all as same, that is right for those that differ and wrong for the others.
    gains = np.bincount(index, weights=np.where(same, -1, 1))
    best = int(np.argmax(np.concatenate([[0], gains.cumsum()])))
    if best == 0:
        return -1.0
    return float(values[best - 1 : best + 1].mean()) if best < len(values) else 2.0


def read_wic(data: Path, gold: Path) -> WicSet:
    """Read a part of WiC.

    Raises:
        InputError: If a line is malformed, or the files have different numbers of lines.
    """
    pairs, same = [], []
    for number, (line, label) in enumerate(zip_longest(read_lines(data), read_lines(gold)), 1):
        if line is None or label is None:
            shorter = data if line is None else gold
            raise InputError(f"{data} and {gold} differ in length: {shorter} ends before the other")
        pairs.append(_read_pair(line, f"{data}, line {number}"))
        if label not in ("T", "F"):
            raise InputError(f"{gold}, line {number}: {label[:40]!r}; expected T or F")
        same.append(label == "T")
    if not pairs:
        raise InputError(f"{data} is empty; expected pairs of sentences")
    return WicSet(pairs, np.array(same))


def read_wic_pairs(data: Path) -> list[WordPair]:
    """Read the pairs of a file without gold labels."""
    lines = enumerate(read_lines(data), start=1)
    return [_read_pair(line, f"{data}, line {number}") for number, line in lines]


def _read_pair(line: str, where: str) -> WordPair:
    fields = line.split("\t")
    indices = _INDICES.fullmatch(fields[2]) if len(fields) == _COLUMNS else None
    if indices is None:
        raise InputError(
            f"{where}: {line[:60]!r}; expected a word, N or V, two indices such as 2-1, and two "
            "sentences, separated by tabs"
        )
    words = []
    for sentence, index in zip(fields[3:], map(int, indices.groups()), strict=True):
        tokens = sentence.split()
        if index >= len(tokens):
            raise InputError(f"{where}: index {index} in a sentence of {len(tokens)} words")
        words.append(Occurrence(tokens, index))
    return WordPair(*words)
