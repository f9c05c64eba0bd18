"""Table 4: the nearest neighbors of "play" in two sentences of SemCor, with and without context."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmore.analysis.neighbors import Occurrence, nearest_neighbors, unit
from elmore.analysis.results import NotAvailableError, Result
from elmore.analysis.wsd import read_wsd
from elmore.embedder import Embedder
from elmore.progress import with_progress

NEIGHBOR_FILES = ("semcor.data.xml", "semcor.gold.key.txt")
"""Files in the folder of the data."""

_WORD = "play"
_NAMES = ("Ruiz", "Garson")  # each occurs in one of the paper's two sentences
_RANKS = ("nearest", "second", "third")


def measure_neighbors(embedder: Embedder, files: Sequence[Path]) -> Result:
    """Return the nearest words in SemCor, by the top layer, and of the word without context.

    Args:
        embedder: The model.
        files: The files in the order of `NEIGHBOR_FILES`.

    Raises:
        NotAvailableError: If a sentence of the paper is not in the text.
    """
    data, keys = files
    text = [sentence.tokens for sentence in read_wsd(data, keys)]
    queries = [_find_query(text, name, data) for name in _NAMES]
    shown = with_progress(text, "SemCor sentences compared", len(text))
    results = nearest_neighbors(embedder, queries, shown, k=len(_RANKS))
    rows = {f"{_WORD}, without context": _nearest_words(embedder, text)}
    for query, neighbors in zip(queries, results, strict=True):
        rows[str(query)] = [str(neighbor.occurrence) for neighbor in neighbors]
    scores = {row: dict(zip(_RANKS, cells, strict=False)) for row, cells in rows.items()}
    return Result(scores, {"sentences": len(text)})


def _find_query(text: Sequence[list[str]], name: str, path: Path) -> Occurrence:
    for tokens in text:
        if name in tokens and _WORD in tokens:
            return Occurrence(tokens, tokens.index(_WORD))
    raise NotAvailableError(f"{path} has no sentence with {name!r} and {_WORD!r}")


def _nearest_words(embedder: Embedder, text: Sequence[list[str]]) -> list[str]:
    """Return the words of a text whose context-independent vectors are nearest."""
    words = sorted({word for tokens in text for word in tokens} - {_WORD})
    vectors = unit(embedder.word_vectors([_WORD, *words]))
    nearest = np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")
    return [words[i] for i in nearest[: len(_RANKS)]]
