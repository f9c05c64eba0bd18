"""The package en-news. Oracles: labeled word senses, chance perplexity."""

from pathlib import Path

import pytest

import elmore
from elmore.analysis.senses import embed_senses, read_senses
from elmore.checkpoint.language_model import read_language_model
from elmore.pretrain.perplexity import measure_perplexity

pytestmark = pytest.mark.models

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"


def test_contextual_layers_separate_senses_better_than_layer_0() -> None:
    """Oracle: occurrences with hand-labeled senses."""
    elmo = elmore.load(FOLDER, device="cpu")
    for word in embed_senses(elmo, read_senses(EXAMPLES / "senses.tsv")):
        layer_0, *contextual = word.accuracies()
        assert max(contextual) > layer_0 + 0.3, word.word


def test_perplexity_is_far_below_chance() -> None:
    """Oracle: a uniform distribution over the vocabulary has a perplexity of 100,003."""
    model, vocabulary, *_ = read_language_model(FOLDER)
    lines = (EXAMPLES / "corpus.txt").read_text(encoding="utf-8").splitlines()
    result = measure_perplexity(model, vocabulary, [line.split() for line in lines[:40]])
    assert len(vocabulary) == 100_003
    assert result.forward < 250
    assert result.backward < 250
