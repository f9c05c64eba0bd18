"""Do the vectors of a word separate its senses? Nearest-neighbor accuracy per layer, and a plot.

J layers, N occurrences of a word, D dim.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64

from elmore.analysis.neighbors import Occurrence, parse_query, unit
from elmore.atomic import atomic_file
from elmore.embedder import Embedder
from elmore.errors import InputError, require
from elmore.text.lines import read_lines
from elmore.text.tokenize import TokenizerName

_COLUMNS = ["word", "sense", "sentence"]
_TIE = 1e-6  # smaller differences of cosines are rounding errors
_COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]  # Okabe-Ito palette
_MARKERS = "os^Dvp"  # a second cue for readers who cannot distinguish the colors


class SenseExample(NamedTuple):
    """A word in a sentence, labeled with its sense."""

    word: str
    """The word that the example illustrates; the sentence may contain an inflected form."""

    sense: str
    occurrence: Occurrence


class WordSenses(NamedTuple):
    """The senses and vectors of all occurrences of one word."""

    word: str
    senses: list[str]
    vectors: Float32[np.ndarray, "J N D"]

    def accuracies(self) -> list[float]:
        """Return the `nearest_accuracy` of each layer."""
        return [nearest_accuracy(layer, self.senses) for layer in self.vectors]

    def points(self, layer: int = -1) -> Float64[np.ndarray, "N 2"]:
        """Project the normalized vectors of a layer to two dimensions."""
        return project(unit(self.vectors[layer]))


def read_senses(
    path: Path, tokenizer: TokenizerName | None = None, language: str | None = None
) -> list[SenseExample]:
    """Read labeled examples.

    Args:
        path: Tab-separated file with the columns word, sense and sentence; the sentence has the
            word in brackets, as in `She wrote a [play] .`.
        tokenizer: See `parse_query`.
        language: See `parse_query`.

    Raises:
        InputError: If a column or the brackets are missing.
    """
    rows = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    if (header := next(rows, [])) != _COLUMNS:
        raise InputError(f"{path}: expected the columns {_COLUMNS}, found {header}")
    examples = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(_COLUMNS):
            raise InputError(f"{path}, line {number}: expected 3 columns, found {len(row)}")
        word, sense, sentence = row
        examples.append(SenseExample(word, sense, parse_query(sentence, tokenizer, language)))
    return examples


def embed_senses(embedder: Embedder, examples: Iterable[SenseExample]) -> list[WordSenses]:
    """Embed the examples and group them by word, in order of first occurrence."""
    examples = list(examples)
    sentences = embedder.stream([example.occurrence.tokens for example in examples])
    by_word: dict[str, list[tuple[str, Float32[np.ndarray, "J D"]]]] = {}
    for (word, sense, occurrence), (_, vectors) in zip(examples, sentences, strict=True):
        # A view would keep the vectors of the whole sentence in memory.
        vector = vectors[:, occurrence.position].copy()
        by_word.setdefault(word, []).append((sense, vector))
    return [
        WordSenses(word, [sense for sense, _ in pairs], np.stack([v for _, v in pairs], axis=1))
        for word, pairs in by_word.items()
    ]


def nearest_accuracy(vectors: Float[np.ndarray, "N D"], senses: Sequence[str]) -> float:
    """Return the fraction of vectors whose nearest neighbor, by cosine, has the same sense.

    Ties count as the fraction of the nearest neighbors with the same sense. The vectors of layer 0
    are identical for all occurrences of a word, so their accuracy is at chance.
    """
    if len(vectors) < 2:
        raise InputError(f"expected at least two occurrences to compare, got {len(vectors)}")
    normalized = unit(vectors.astype(np.float64))
    cosines = normalized @ normalized.T  # (N, N)
    np.fill_diagonal(cosines, -np.inf)
    is_nearest = cosines >= cosines.max(axis=1, keepdims=True) - _TIE
    names = np.array(senses)
    is_same_sense = names[:, None] == names
    return float(((is_nearest & is_same_sense).sum(axis=1) / is_nearest.sum(axis=1)).mean())


def project(vectors: Float[np.ndarray, "N D"]) -> Float64[np.ndarray, "N 2"]:
    """Return the first two principal components of each vector (PCA).

    The sign of a component is chosen so that its largest absolute value is positive.
    """
    exact = vectors.astype(np.float64)
    u, singular_values, _ = np.linalg.svd(exact - exact.mean(axis=0), full_matrices=False)
    # Equal vectors differ by rounding errors, which should not show in a plot.
    singular_values[singular_values < _TIE * np.linalg.norm(exact)] = 0
    points = np.zeros((len(vectors), 2))
    points[:, : len(singular_values)] = (u * singular_values)[:, :2]
    farthest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return points * np.where(farthest < 0, -1.0, 1.0)


def plot_senses(words: Sequence[WordSenses], path: Path, *, layer: int = -1) -> None:
    """Save a PNG file with one scatter plot per word: its occurrences, colored by sense."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if not words:
        raise InputError("expected at least one word to plot, got none")
    columns = min(len(words), 2)
    rows = -(-len(words) // columns)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(4.5 * columns, 4 * rows), layout=layout)
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for word, axes in zip(words, panels, strict=False):
        _plot_word(word, axes, layer)
    for axes in panels[len(words) :]:
        axes.remove()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _plot_word(word: WordSenses, axes: Any, layer: int) -> None:
    points, senses = word.points(layer), np.array(word.senses)
    for i, sense in enumerate(dict.fromkeys(word.senses)):
        axes.scatter(
            *points[senses == sense].T,
            s=36,
            color=_COLORS[i % len(_COLORS)],
            marker=_MARKERS[i % len(_MARKERS)],
            alpha=0.85,
            linewidths=0.5,
            edgecolors="white",
            label=sense,
        )
    axes.set_title(word.word, loc="left", fontweight="bold")
    accuracy = nearest_accuracy(word.vectors[layer], word.senses)
    axes.set_title(f"nearest has the same sense: {accuracy:.0%}", loc="right", fontsize=9)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.08)
    axes.set_aspect("equal", adjustable="datalim")  # distances are comparable in all directions
    for spine in axes.spines.values():
        spine.set_color("0.8")
    # Below the plot, where it hides no points.
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), ncols=3, frameon=False, handletextpad=0.2
    )
