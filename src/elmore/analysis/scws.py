"""SCWS (Huang et al., 2012): the similarity of two words in context, compared with human ratings.

    ratings.txt   id, word, part of speech, word, part of speech, context of the first word, context
                  of the second word, mean rating, ten ratings; separated by tabs. Contexts are
                  tokenized, with the word in <b> ... </b>.

N pairs.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.analysis.neighbors import Occurrence
from elmore.analysis.results import Result
from elmore.analysis.word_pairs import WordPair, pair_similarities
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.lines import read_lines

SCWS_FILES = ("ratings.txt",)
"""Files in the folder of the dataset."""

_MIN_COLUMNS = 8  # without the ratings of single persons, which are not used


class RatedPair(NamedTuple):
    """Two words in context, and the mean rating of their similarity, from 0 to 10."""

    pair: WordPair
    rating: float


def measure_scws(embedder: Embedder, path: Path) -> Result:
    """Return Spearman's correlation, times 100, of the ratings with the cosines of each layer.

    A context, about 50 words on either side, is embedded as one sentence.

    Args:
        embedder: The model.
        path: `ratings.txt`.
    """
    rated = read_scws(path)
    ratings = np.array([rating for _, rating in rated])
    similarities = pair_similarities(embedder, [pair for pair, _ in rated])
    scores = {
        row: {"Spearman": 100 * spearman(values, ratings)} for row, values in similarities.items()
    }
    return Result(scores, {"pairs": len(rated)})


def spearman(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> float:
    """Return Spearman's rank correlation; equal values share the mean of their ranks.

    It is 0 if all values of x or of y are equal.
    """
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def ranks(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the ranks of values, from 1; equal values share the mean of their ranks."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[index]


def read_scws(path: Path) -> list[RatedPair]:
    """Read the pairs and their mean ratings.

    Raises:
        InputError: If a line is malformed, or there is none.
    """
    pairs = [
        _read_pair(line, f"{path}, line {number}")
        for number, line in enumerate(read_lines(path), start=1)
    ]
    if len(pairs) < 2:
        raise InputError(f"{path} has {len(pairs)} pairs; a correlation needs at least two")
    return pairs


def _read_pair(line: str, where: str) -> RatedPair:
    fields = line.split("\t")
    if len(fields) < _MIN_COLUMNS:
        raise InputError(
            f"{where}: {len(fields)} columns; expected at least {_MIN_COLUMNS}, separated by tabs "
            "(SCWS)"
        )
    try:
        rating = float(fields[7])
    except ValueError:
        raise InputError(f"{where}: rating {fields[7][:40]!r}; expected a number") from None
    return RatedPair(WordPair(*(_read_context(text, where) for text in fields[5:7])), rating)


def _read_context(text: str, where: str) -> Occurrence:
    tokens = text.split()
    if [token for token in tokens if token in ("<b>", "</b>")] != ["<b>", "</b>"]:
        raise InputError(f"{where}: expected one word in <b> ... </b> in each context")
    start, end = tokens.index("<b>"), tokens.index("</b>")
    if end - start != 2:
        raise InputError(f"{where}: {end - start - 1} words in <b> ... </b>; expected one")
    return Occurrence([*tokens[:start], tokens[start + 1], *tokens[end + 1 :]], start)
