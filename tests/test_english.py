"""The English model. Oracles: labeled word senses, chance perplexity, float32 vectors."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import elmore
from elmore.analysis.senses import embed_senses, read_senses
from elmore.checkpoint.language_model import read_language_model
from elmore.pretrain.perplexity import measure_perplexity
from tests.cpu import needs_int8

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def english() -> elmore.Embedder:
    return elmore.load(device="cpu")


def test_contextual_layers_separate_senses_better_than_layer_0(english: elmore.Embedder) -> None:
    """Oracle: occurrences with hand-labeled senses."""
    for word in embed_senses(english, read_senses(EXAMPLES / "senses.tsv")):
        layer_0, *contextual = word.accuracies()
        assert max(contextual) > layer_0 + 0.3, word.word


def test_perplexity_is_far_below_chance() -> None:
    """Oracle: a uniform distribution over the vocabulary has a perplexity of 100,003."""
    model, vocabulary, *_ = read_language_model(Path("en"))
    lines = (EXAMPLES / "corpus.txt").read_text(encoding="utf-8").splitlines()
    result = measure_perplexity(model, vocabulary, [line.split() for line in lines[:40]])
    assert len(vocabulary) == 100_003
    assert math.isfinite(result.average)
    assert result.forward < 250
    assert result.backward < 250


def test_word_has_different_vectors_in_different_sentences(english: elmore.Embedder) -> None:
    river, money = english.embed([["the", "bank", "of", "a", "river"], ["the", "bank", "pays"]])
    np.testing.assert_array_equal(river[0, 1], money[0, 1])
    assert np.abs(river[2, 1] - money[2, 1]).max() > 0.1


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    """Every second sentence of the example corpus: 257 sentences, 3,200 words."""
    lines = (EXAMPLES / "corpus.txt").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines[::2]]


@pytest.fixture(scope="module")
def exact(english: elmore.Embedder, sentences: list[list[str]]) -> np.ndarray:
    return np.concatenate(english.embed(sentences), axis=1)  # (J, N, D)


# Bounds on the lowest cosine and on the mean cosine of a layer. Measured on the whole corpus: bf16
# 0.99988 and 0.999988; int8 0.9994 and 0.99976; int8 without VNNI, with 7-bit activations, 0.9976
# and 0.99927.
INT8 = (0.999, 0.9997) if torch.cpu._is_vnni_supported() else (0.997, 0.999)


@pytest.mark.parametrize(
    ("precision", "min_cosine", "mean_cosine"),
    [("bf16", 0.9998, 0.99998), pytest.param("int8", *INT8, marks=needs_int8)],
)
def test_lower_precision_is_close_to_float32(
    exact: np.ndarray, sentences: list[list[str]], precision, min_cosine: float, mean_cosine: float
) -> None:
    """Oracle: the vectors in float32. The cosine is computed for each word and layer."""
    cosines = cosines_with(exact, elmore.load(device="cpu", precision=precision), sentences)
    assert cosines.min() > min_cosine
    assert cosines.mean(axis=1).min() > mean_cosine


def test_weights_stored_as_int8_are_close_to_float32(
    english: elmore.Embedder, exact: np.ndarray, sentences: list[list[str]], tmp_path: Path
) -> None:
    """Oracle: the vectors of the weights before they were quantized. Measured: 0.99975, 0.99991."""
    english.save(tmp_path / "int8", dtype="int8")
    cosines = cosines_with(exact, elmore.load(tmp_path / "int8", device="cpu"), sentences)
    assert cosines.min() > 0.9995
    assert cosines.mean(axis=1).min() > 0.9998


def cosines_with(
    exact: np.ndarray, embedder: elmore.Embedder, sentences: list[list[str]]
) -> np.ndarray:
    """Return the cosine of the vectors for each layer and word."""
    vectors = np.concatenate(embedder.embed(sentences), axis=1)
    norms = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(exact, axis=-1)
    return (vectors * exact).sum(axis=-1, dtype=np.float64) / norms
