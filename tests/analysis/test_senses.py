"""Word senses. Oracles: eigenvectors of the covariance, loops over pairs, `Embedder.embed`."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from elmore.analysis.neighbors import Occurrence
from elmore.analysis.senses import (
    SenseExample,
    WordSenses,
    embed_senses,
    nearest_accuracy,
    plot_senses,
    project,
    read_senses,
)
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.tokenize import tokenize

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = ["play", "bank", "spring", "light"]


@pytest.fixture(scope="module")
def examples() -> list[SenseExample]:
    return read_senses(EXAMPLES / "senses.tsv")


@pytest.mark.parametrize(("count", "dim"), [(40, 6), (5, 30), (3, 2)])
def test_projection_equals_the_top_eigenvectors_of_the_covariance(count: int, dim: int) -> None:
    vectors = np.random.default_rng(0).normal(3, 1, (count, dim)).astype(np.float32)
    centered = vectors - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centered.T @ centered)
    expected = centered @ axes[:, [-1, -2]]

    points = project(vectors)

    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-6)
    for axis in points.T:
        assert axis.max() == np.abs(axis).max()


def test_projection_is_invariant_to_rotation_and_translation() -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 8))
    for transformed in (-vectors[:, ::-1], vectors + 5):
        np.testing.assert_allclose(project(transformed), project(vectors), atol=1e-9)


@pytest.mark.parametrize("shape", [(7, 5), (1, 5), (6, 1), (2, 2)])
def test_equal_vectors_are_projected_to_zero(shape: tuple[int, int]) -> None:
    points = project(np.full(shape, 0.1, dtype=np.float32))
    assert points.shape == (shape[0], 2)
    assert (points == 0).all()


def test_rounding_errors_are_ignored() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=6) + 1e-8 * rng.normal(size=(9, 6))
    assert (project(vectors) == 0).all()
    assert nearest_accuracy(vectors, [*"aaabbbccc"]) == pytest.approx(2 / 8)


def test_points_ignore_the_length_of_vectors() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 9, 6)).astype(np.float32)
    longer = vectors * rng.uniform(1, 9, (2, 9, 1)).astype(np.float32)
    points = [WordSenses("play", [*"aaabbbccc"], v).points(1) for v in (vectors, longer)]
    np.testing.assert_allclose(points[0], points[1], atol=1e-6)


def accuracy_by_loops(vectors: np.ndarray, senses: list[str]) -> float:
    hits = 0
    for i, v in enumerate(vectors):
        others = [j for j in range(len(vectors)) if j != i]
        cosine = {j: v @ vectors[j] / np.linalg.norm(vectors[j]) for j in others}
        hits += senses[max(others, key=lambda j: cosine[j])] == senses[i]
    return hits / len(vectors)


def test_accuracy_equals_a_loop_over_all_pairs() -> None:
    rng = np.random.default_rng(1)
    senses = [*"aaaaaaabbbbbbcccc"]
    centers = {sense: rng.normal(size=9) for sense in "abc"}
    for noise in (0.1, 1.0, 3.0):
        vectors = np.stack([centers[s] + noise * rng.normal(size=9) for s in senses])
        vectors *= rng.uniform(0.1, 9, (len(senses), 1))  # cosines do not depend on lengths
        assert nearest_accuracy(vectors, senses) == pytest.approx(
            accuracy_by_loops(vectors, senses)
        )


def test_accuracy_of_equal_vectors_is_at_chance() -> None:
    senses = ["a"] * 5 + ["b"] * 3
    expected = (5 * 4 / 7 + 3 * 2 / 7) / 8  # sampled at random from the other seven
    for value in (0.1, 0.0):
        vectors = np.full((8, 11), value, dtype=np.float32)
        assert nearest_accuracy(vectors, senses) == pytest.approx(expected)


def test_single_occurrence_is_rejected() -> None:
    with pytest.raises(InputError, match="at least two occurrences to compare, got 1"):
        nearest_accuracy(np.ones((1, 3)), ["a"])


def test_vectors_equal_those_of_the_words_in_brackets(embedder: Embedder) -> None:
    examples = [
        SenseExample("bank", "river", Occurrence(["the", "muddy", "bank"], 2)),
        SenseExample("play", "verb", Occurrence(["they", "play", "a", "play"], 1)),
        SenseExample("bank", "money", Occurrence(["banks", "lend"], 0)),
    ]
    bank, play = embed_senses(embedder, examples)
    assert (bank.word, bank.senses) == ("bank", ["river", "money"])
    assert (play.word, play.senses) == ("play", ["verb"])
    for vectors, (_, _, occurrence) in zip(
        [bank.vectors[:, 0], play.vectors[:, 0], bank.vectors[:, 1]], examples, strict=True
    ):
        [expected] = embedder.embed([occurrence.tokens])
        np.testing.assert_allclose(vectors, expected[:, occurrence.position], atol=1e-6)


def test_accuracy_of_layer_0_is_at_chance(embedder: Embedder, examples: list[SenseExample]) -> None:
    for word in embed_senses(embedder, examples):
        counts, total = Counter(word.senses), len(word.senses)
        chance = sum(n * (n - 1) for n in counts.values()) / (total * (total - 1))
        assert word.accuracies()[0] == pytest.approx(chance)
        assert (word.points(0) == 0).all()
        assert np.ptp(word.points(), axis=0).min() > 0


@pytest.mark.parametrize(("count", "size"), [(1, (540, 480)), (3, (1080, 960)), (4, (1080, 960))])
def test_plot_has_one_panel_per_word(tmp_path: Path, count: int, size: tuple[int, int]) -> None:
    senses = [*"aabbccddeeffgg"]  # more senses than colors
    vectors = np.random.default_rng(0).normal(size=(2, len(senses), 5)).astype(np.float32)
    vectors[0] = 1
    words = [WordSenses(name, senses, vectors) for name in WORDS[:count]]
    for layer in (0, 1):
        file = tmp_path / "new" / f"{layer}.png"
        plot_senses(words, file, layer=layer)
        height, width, _ = imread(file).shape
        assert (width, height) == size
        assert file.stat().st_size < 150_000
    assert len(list(file.parent.iterdir())) == 2  # no temporary files are left


def test_plot_without_words_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one word to plot"):
        plot_senses([], tmp_path / "plot.png")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the columns"),
        ("word\tmeaning\tsentence\n", "found .*'meaning'"),
        ("word\tsense\tsentence\nplay\tverb\n", "line 2: expected 3 columns, found 2"),
        ("word\tsense\tsentence\nplay\tverb\tthey play\n", "expected one word in brackets"),
    ],
)
def test_malformed_table_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "senses.tsv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_senses(file)


def test_examples_have_enough_occurrences_of_each_sense(examples: list[SenseExample]) -> None:
    counts = Counter((word, sense) for word, sense, _ in examples)
    assert list(dict.fromkeys(word for word, _ in counts)) == WORDS
    assert min(counts.values()) >= 12
    # Inflected forms would lift the accuracy of layer 0 above chance.
    assert all(occurrence.word == word for word, _, occurrence in examples)


def test_examples_are_all_sentences_of_the_corpus_with_these_words(
    examples: list[SenseExample],
) -> None:
    lines = (EXAMPLES / "corpus.txt").read_text(encoding="ascii").splitlines()
    corpus = [tuple(tokenize(line)) for line in lines]
    sentences = [tuple(occurrence.tokens) for _, _, occurrence in examples]
    assert 450 <= len(corpus) <= 600
    assert len(set(corpus)) == len(corpus)
    assert len(set(sentences)) == len(sentences)
    with_words = {s for s in corpus if {token.lower() for token in s} & {*WORDS}}
    assert with_words == set(sentences)
    assert all(sum(token.lower() in WORDS for token in sentence) == 1 for sentence in sentences)


def test_sentences_are_tokenized_for_the_language(tmp_path: Path) -> None:
    """Oracle: the Korean rules of Moses, which keep Hangul words whole."""
    path, ship = tmp_path / "senses.tsv", "\ubc30\ub97c"
    row = f"\ubc30\tship\t\uadf8\ub294 [{ship}] \ud0d4\ub2e4.\n"
    path.write_text(f"word\tsense\tsentence\n{row}", encoding="utf-8")
    [example] = read_senses(path, "moses", "ko")
    assert example.occurrence.tokens == ["\uadf8\ub294", ship, "\ud0d4\ub2e4", "."]
