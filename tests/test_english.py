"""The English model that ships with elmore: it is small enough, it loads, and it has learned."""

import math
from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore.analysis.senses import embed_senses, read_senses
from elmore.checkpoint.language_model import read_language_model
from elmore.checkpoint.pretrained import CARD, find_model
from elmore.pretrain.perplexity import measure_perplexity

EXAMPLES = Path(__file__).parents[1] / "examples"
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def english() -> elmore.Embedder:
    return elmore.load(device="cpu")


def test_the_package_stays_small() -> None:
    sizes = [path.stat().st_size for path in find_model("en").iterdir()]
    assert max(sizes) < 50 * MEGABYTE
    assert sum(sizes) <= 90 * MEGABYTE


def test_it_has_a_card() -> None:
    card = (find_model("en") / CARD).read_text(encoding="utf-8")
    assert all(part in card for part in ("## Data", "## Training", "## Scores", "## Limits"))


def test_context_tells_senses_apart(english: elmore.Embedder) -> None:
    """The oracle is people, who labeled the occurrences; a word alone has one vector."""
    for word in embed_senses(english, read_senses(EXAMPLES / "senses.tsv")):
        alone, *in_context = word.accuracies()
        assert max(in_context) > alone + 0.3, word.word


def test_it_predicts_words() -> None:
    """The oracle is chance: 100,003 words, guessed evenly, have that perplexity."""
    model, vocabulary, *_ = read_language_model(Path("en"))
    lines = (EXAMPLES / "corpus.txt").read_text(encoding="utf-8").splitlines()
    result = measure_perplexity(model, vocabulary, [line.split() for line in lines[:40]])
    assert len(vocabulary) == 100_003
    assert math.isfinite(result.average)
    assert result.forward < 250
    assert result.backward < 250


def test_the_same_word_differs_by_sentence(english: elmore.Embedder) -> None:
    river, rates = english.embed([["the", "bank", "of", "a", "river"], ["the", "bank", "pays"]])
    np.testing.assert_array_equal(river[0, 1], rates[0, 1])
    assert np.abs(river[2, 1] - rates[2, 1]).max() > 0.1
