"""The package ko. Oracles: labeled homonyms, chance perplexity."""

from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore.analysis.senses import embed_senses, read_senses
from elmore.checkpoint.language_model import read_language_model
from elmore.pretrain.perplexity import measure_perplexity

pytestmark = pytest.mark.models

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"


def test_contextual_layers_separate_homonyms_better_than_layer_0() -> None:
    """Oracle: 배, 눈, 말 and 사과 in sentences with hand-labeled senses."""
    elmo = elmore.load(FOLDER, device="cpu")
    examples = read_senses(EXAMPLES / "senses-ko.tsv", elmo.tokenizer, elmo.language)
    for word in embed_senses(elmo, examples):
        layer_0, *contextual = word.accuracies()
        assert max(contextual) > layer_0 + 0.3, word.word


def test_tokenizer_and_language_come_from_the_model() -> None:
    """Oracle: the vectors of tokens that were split by hand."""
    elmo = elmore.load(FOLDER, device="cpu")
    tokens = ["서울", "(", "Seoul", ")", "의", "기온은", "3.5도였다", "."]
    text, words = elmo.embed(["서울(Seoul)의 기온은 3.5도였다.", tokens])
    np.testing.assert_allclose(text, words, atol=1e-6)


def test_perplexity_is_far_below_chance() -> None:
    """Oracle: a uniform distribution over the vocabulary has a perplexity of 150,003."""
    model, vocabulary, *_ = read_language_model(FOLDER)
    lines = (EXAMPLES / "senses-ko.tsv").read_text(encoding="utf-8").splitlines()[1:]
    sentences = [line.split("\t")[2].replace("[", "").replace("]", "") for line in lines]
    result = measure_perplexity(
        model, vocabulary, [elmore.tokenize(text, language="ko") for text in sentences]
    )
    assert len(vocabulary) == 150_003
    assert result.forward < 500
    assert result.backward < 500
