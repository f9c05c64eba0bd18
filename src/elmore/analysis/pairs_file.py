"""Similarity of words in context, by layer, on any file in the format of WiC or SCWS.

WiC and SCWS have fixed files and scores, see `elmore.analysis.wic` and `elmore.analysis.scws`. This
evaluation needs one file of pairs, with or without gold labels, and no threshold.

N pairs.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from elmore.analysis.results import Cell, Result
from elmore.analysis.scws import ranks, read_scws, spearman
from elmore.analysis.wic import read_wic, read_wic_pairs
from elmore.analysis.word_pairs import pair_similarities
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.lines import read_lines

_WIC_COLUMNS, _SCWS_COLUMNS = 5, 8


def measure_pairs(embedder: Embedder, path: Path, gold: Path | None = None) -> Result:
    """Return how similar the words of pairs are in each layer, and how well that fits gold data.

    For SCWS, the fit is Spearman's correlation with the ratings. For WiC, it is the area under the
    ROC curve: the probability that a random pair with the same meaning is more similar than one
    with different meanings.

    Args:
        embedder: The model.
        path: A file of pairs; the number of its columns tells WiC (5) from SCWS (8 or more).
        gold: T or F for each pair of WiC; without it, only similarities are returned.

    Raises:
        InputError: If the file has neither format.
    """
    columns = next((line.count("\t") + 1 for line in read_lines(path)), 0)
    if columns >= _SCWS_COLUMNS:
        return _measure_ratings(embedder, path)
    if columns == _WIC_COLUMNS:
        return _measure_meanings(embedder, path, gold)
    raise InputError(
        f"{path}: {columns} columns; expected {_WIC_COLUMNS} (WiC) or at least {_SCWS_COLUMNS} "
        "(SCWS), separated by tabs"
    )


def find_gold(path: Path) -> Path | None:
    """Return the gold labels beside a file of WiC: `dev.gold.txt` for `dev.data.txt`."""
    gold = path.with_name(path.name.replace(".data.", ".gold."))
    return gold if gold != path and gold.is_file() else None


def area_under_curve(values: Float[np.ndarray, " N"], is_same: Bool[np.ndarray, " N"]) -> float:
    """Return the probability that a positive example has a larger value than a negative one.

    A tie counts half. It is 0.5 if all examples are positive, or none.
    """
    positive = int(is_same.sum())
    negative = len(is_same) - positive
    if not positive or not negative:
        return 0.5
    above = ranks(values)[is_same].sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


def _measure_ratings(embedder: Embedder, path: Path) -> Result:
    rated = read_scws(path)
    ratings = np.array([rating for _, rating in rated])
    similarities = pair_similarities(embedder, [pair for pair, _ in rated])
    scores = {
        row: {
            "mean cosine": float(values.mean()),
            "Spearman's correlation": spearman(values, ratings),
        }
        for row, values in similarities.items()
    }
    return Result(scores, {"pairs": len(rated)})


def _measure_meanings(embedder: Embedder, path: Path, gold: Path | None) -> Result:
    pairs, same = read_wic(path, gold) if gold else (read_wic_pairs(path), None)
    scores: dict[str, dict[str, Cell]] = {}
    for row, values in pair_similarities(embedder, pairs).items():
        scores[row] = {"mean cosine": float(values.mean())}
        if same is not None:
            for name, members in (("same meaning", same), ("different meanings", ~same)):
                if members.any():
                    scores[row][f"mean cosine, {name}"] = float(values[members].mean())
            scores[row]["area under the ROC curve"] = area_under_curve(values, same)
    return Result(scores, {"pairs": len(pairs)})
