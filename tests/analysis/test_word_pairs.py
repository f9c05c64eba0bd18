"""Similarities of words in context. Oracle: angles that the test chooses."""

import numpy as np
import pytest

from elmore.analysis.neighbors import Occurrence
from elmore.analysis.word_pairs import WordPair, pair_similarities
from elmore.embedder import Embedder
from tests.analysis.toy import ToyEmbedder, at_angle


def test_similarities_are_cosines_by_layer_their_mean_and_that_of_the_average() -> None:
    x, y = at_angle(0, 0), at_angle(60, 90)
    y[1] = [0, 3]  # length 3 at 90 degrees
    embedder = ToyEmbedder({"x": x, "y": y})
    pairs = [
        WordPair(Occurrence(["a", "x"], 1), Occurrence(["y", "b"], 0)),
        WordPair(Occurrence(["x"], 0), Occurrence(["x", "y"], 0)),
    ]
    similarities = pair_similarities(embedder, pairs)
    assert list(similarities) == ["layer 0", "layer 1", "mean of cosines", "averaged layers"]
    average = np.array([0.25, (np.sqrt(0.75) + 3) / 2])  # of y; that of x is (1, 0)
    expected = [0.5, 0, 0.25, average[0] / np.linalg.norm(average)]
    for values, first in zip(similarities.values(), expected, strict=True):
        assert values == pytest.approx([first, 1], abs=1e-6)


def test_vectors_are_those_of_the_embedder(embedder: Embedder) -> None:
    """Oracle: `embed`, with `layers="average"` for the averaged layers."""
    pair = WordPair(
        Occurrence(["the", "bank", "fails"], 1), Occurrence(["by", "the", "old", "bank"], 3)
    )
    similarities = pair_similarities(embedder, [pair])
    for name, layers in [("layer 0", 0), ("layer 2", 2), ("averaged layers", "average")]:
        u, v = (embedder.embed([word.tokens], layers=layers)[0][word.position] for word in pair)
        cosine = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
        assert similarities[name] == pytest.approx([cosine], abs=2e-6)
