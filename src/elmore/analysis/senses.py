"""Does a word's vector know which sense is meant? A number for each layer, and a map.

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
_TIE = 1e-6  # cosines nearer than this differ by rounding
_COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]  # Okabe and Ito's
_MARKERS = "os^Dvp"  # a second cue, where colors can't be told apart


class SenseExample(NamedTuple):
    """A word in a sentence, and what it means there."""

    word: str
    """The word that the example is about; a form of it may be in the sentence."""

    sense: str
    occurrence: Occurrence


class WordSenses(NamedTuple):
    """All occurrences of one word: what each means, and its vectors."""

    word: str
    senses: list[str]
    vectors: Float32[np.ndarray, "J N D"]

    def accuracies(self) -> list[float]:
        """Return, for each layer, how often the nearest occurrence has the same sense."""
        return [nearest_accuracy(layer, self.senses) for layer in self.vectors]

    def points(self, layer: int = -1) -> Float64[np.ndarray, "N 2"]:
        """Return a place on a map for each occurrence; like the cosine, it ignores lengths."""
        return project(unit(self.vectors[layer]))


def read_senses(path: Path, tokenizer: TokenizerName = "moses") -> list[SenseExample]:
    """Read a table of examples.

    Args:
        path: Tab-separated, with the columns word, sense and sentence; the sentence has the word
            in brackets, as in `She wrote a [play] .`.
        tokenizer: What splits the sentences.
    """
    rows = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    if (header := next(rows, [])) != _COLUMNS:
        raise InputError(f"{path}: expected the columns {_COLUMNS}, found {header}")
    examples = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(_COLUMNS):
            raise InputError(f"{path}, line {number}: expected 3 columns, found {len(row)}")
        word, sense, sentence = row
        examples.append(SenseExample(word, sense, parse_query(sentence, tokenizer)))
    return examples


def embed_senses(embedder: Embedder, examples: Iterable[SenseExample]) -> list[WordSenses]:
    """Embed the examples, and group them by word in the order of their first occurrence."""
    examples = list(examples)
    sentences = embedder.stream([example.occurrence.tokens for example in examples])
    found: dict[str, list[tuple[str, Float32[np.ndarray, "J D"]]]] = {}
    for (word, sense, occurrence), (_, vectors) in zip(examples, sentences, strict=True):
        # A copy, or the vectors of the whole sentence would stay in memory.
        vector = vectors[:, occurrence.position].copy()
        found.setdefault(word, []).append((sense, vector))
    return [
        WordSenses(word, [sense for sense, _ in pairs], np.stack([v for _, v in pairs], axis=1))
        for word, pairs in found.items()
    ]


def nearest_accuracy(vectors: Float[np.ndarray, "N D"], senses: Sequence[str]) -> float:
    """Return how often the nearest other vector, by cosine, has the same sense.

    Where several are equally near, it is the share of them that has it. So the vectors of layer 0,
    which are all the same, come out at chance.
    """
    if len(vectors) < 2:
        raise InputError(f"expected at least two occurrences to compare, got {len(vectors)}")
    directions = unit(vectors.astype(np.float64))
    cosines = directions @ directions.T  # (N, N)
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines >= cosines.max(axis=1, keepdims=True) - _TIE
    names = np.array(senses)
    same = names[:, None] == names
    return float(((nearest & same).sum(axis=1) / nearest.sum(axis=1)).mean())


def project(vectors: Float[np.ndarray, "N D"]) -> Float64[np.ndarray, "N 2"]:
    """Return the coordinates of vectors along their two main axes (PCA).

    An axis has two directions; we take the one in which the farthest point is positive.
    """
    exact = vectors.astype(np.float64)
    u, spread, _ = np.linalg.svd(exact - exact.mean(axis=0), full_matrices=False)
    # What is left of equal vectors is rounding, and should not fill the map.
    spread[spread < _TIE * np.linalg.norm(exact)] = 0
    points = np.zeros((len(vectors), 2))
    points[:, : len(spread)] = (u * spread)[:, :2]
    farthest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return points * np.where(farthest < 0, -1.0, 1.0)


def plot_senses(words: Sequence[WordSenses], path: Path, *, layer: int = -1) -> None:
    """Draw a map of each word's occurrences, colored by sense, side by side in one PNG file."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if not words:
        raise InputError("expected at least one word to draw, got none")
    columns = min(len(words), 2)
    rows = -(-len(words) // columns)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(4.5 * columns, 4 * rows), layout=layout)
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for word, axes in zip(words, panels, strict=False):
        _draw(word, axes, layer)
    for axes in panels[len(words) :]:
        axes.remove()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _draw(word: WordSenses, axes: Any, layer: int) -> None:
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
    axes.set_aspect("equal", adjustable="datalim")  # distances mean something
    for spine in axes.spines.values():
        spine.set_color("0.8")
    # Below the map, where it hides no point.
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), ncols=3, frameon=False, handletextpad=0.2
    )
