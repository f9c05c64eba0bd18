"""How contextual layers are. Oracles: the formulas of Ethayarajh (2019), pair by pair."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from elmore.analysis import self_similarity as module
from elmore.analysis.self_similarity import (
    measure_self_similarity,
    plot_self_similarity,
    self_similarity,
)
from elmore.embedder import Embedder
from elmore.errors import InputError
from tests.analysis.toy import ToyEmbedder

TEXT = [
    ["the", "bank", "failed"],
    ["a", "bank", "of", "the", "river"],
    ["the", "play", "the", "bank", "paid", "for"],
    ["rivers", "bank", "left"],
    ["the", "bank"],
    ["the", "play", "failed"],
    ["bank"],
]


class RandomEmbedder:
    """Each layer of each word of each sentence is a random vector; a sentence's are fixed."""

    num_layers, dim, tokenizer, language = 3, 8, "whitespace", "en"

    def vectors(self, tokens: list[str]) -> np.ndarray:
        seed = [ord(letter) for letter in " ".join(tokens)]
        shape = (self.num_layers, len(tokens), self.dim)
        return np.random.default_rng(seed).normal(0.3, 1, shape).astype(np.float32)

    def stream(self, sentences: Iterable[list[str]]) -> Iterator[tuple[list[str], np.ndarray]]:
        yield from ((tokens, self.vectors(tokens)) for tokens in sentences)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def mean_of_pairs(vectors: list[np.ndarray]) -> float:
    return float(np.mean([cosine(x, y) for x, y in combinations(vectors, 2)]))


def test_similarities_are_those_of_the_formulas() -> None:
    """`bank` is in seven sentences and `the` in five, once with two occurrences."""
    embedder = RandomEmbedder()
    result = self_similarity(embedder, [*TEXT, TEXT[0]])
    vectors = [embedder.vectors(tokens) for tokens in TEXT]
    for layer in range(3):
        of_words = [
            mean_of_pairs(
                [v[layer, t.index(word)] for t, v in zip(TEXT, vectors, strict=True) if word in t]
            )
            for word in ("bank", "the")
        ]
        assert result.of_words[layer] == pytest.approx(np.mean(of_words), abs=1e-5)
        several = [v[layer] for v in vectors if v.shape[1] > 1]
        of_sentences = [np.mean([cosine(x, v.mean(axis=0)) for x in v]) for v in several]
        assert result.of_sentences[layer] == pytest.approx(np.mean(of_sentences), abs=1e-5)
    assert (result.num_words, result.num_sentences) == (2, 6)


def test_random_words_are_distinct_and_in_different_sentences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_RANDOM_WORDS", 4)
    embedder, drawn = RandomEmbedder(), set()
    for seed in range(20):
        chosen = module._random_occurrences(TEXT, np.random.default_rng(seed))
        words = [TEXT[number][position] for number, position in chosen.items()]
        assert len(set(words)) == len(words) == 4
        drawn.update(words)
        vectors = [embedder.vectors(TEXT[n])[:, position] for n, position in chosen.items()]
        expected = [mean_of_pairs([v[layer] for v in vectors]) for layer in range(3)]
        result = self_similarity(embedder, TEXT, seed)
        np.testing.assert_allclose(result.anisotropy, expected, atol=1e-5)
    assert drawn == {word for tokens in TEXT for word in tokens}


def test_words_without_context_have_self_similarity_one() -> None:
    words = sorted({word for tokens in TEXT for word in tokens})
    table = dict(zip(words, np.random.default_rng(0).normal(size=(len(words), 2, 6)), strict=True))
    np.testing.assert_allclose(self_similarity(ToyEmbedder(table), TEXT).of_words, 1, atol=1e-6)


def test_vectors_of_one_direction_are_adjusted_to_zero(tmp_path: Path) -> None:
    words = {word for tokens in TEXT for word in tokens}
    embedder = ToyEmbedder({word: [[len(word), 0], [0, 2]] for word in words})
    embedder.tokenizer, embedder.language = "whitespace", "en"
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(tokens) + "\n" for tokens in TEXT))
    result = measure_self_similarity(embedder, path)
    for row in result.scores.values():
        assert row["random words (anisotropy)"] == pytest.approx(1)
        assert row["self-similarity, adjusted"] == pytest.approx(0, abs=1e-6)
        assert row["intra-sentence similarity, adjusted"] == pytest.approx(0, abs=1e-6)
    assert "anisotropic (mean cosine above 0.05): confirmed" in result.findings[0]
    assert "not confirmed (by layer: 0.000, 0.000)" in result.findings[2]


def test_first_layer_of_a_bilm_ignores_the_context(embedder: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(tokens) + "\n" for tokens in TEXT))
    result = measure_self_similarity(embedder, path)
    of_layers = [row["self-similarity"] for row in result.scores.values()]
    assert of_layers[0] == pytest.approx(1, abs=1e-5)
    assert all(value < 1 - 1e-4 for value in of_layers[1:])
    [plot] = plot_self_similarity(result)
    assert all(text in plot.svg for text in ("mean cosine", "layer of the biLM", "random words"))


def test_text_without_repeated_words_is_rejected() -> None:
    with pytest.raises(InputError, match="2 distinct sentences, of which no 5 share a word"):
        self_similarity(RandomEmbedder(), [["a", "b"], ["c"], ["c"]])
