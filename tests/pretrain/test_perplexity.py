"""Oracle: every word's probability by a softmax in numpy, one sentence at a time."""

import math

import numpy as np
import pytest
import torch

from elmore.bilm import softmax
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.errors import InputError
from elmore.inference import cpu
from elmore.pretrain.perplexity import measure_perplexity
from elmore.text.characters import encode_sentences
from elmore.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "the", "bank", "of", "river"])
SENTENCES = [
    ["the", "bank", "of", "the", "river"],
    ["banks", "fail"],
    ["the"],
    [],
    ["of", "the", "bank"] * 7,
]


@pytest.fixture
def model(bilm: BiLM) -> LanguageModel:
    softmax = Softmax(dim=bilm.config.dim, vocab_size=len(VOCABULARY))
    torch.nn.init.normal_(softmax.weight)
    torch.nn.init.normal_(softmax.bias)
    return LanguageModel(bilm, softmax).eval()


@torch.no_grad()
def by_hand(model: LanguageModel) -> tuple[float, float]:
    weight, bias = model.softmax.weight.numpy(), model.softmax.bias.numpy()
    sums, count = [0.0, 0.0], 0
    for words in filter(None, SENTENCES):
        top = model.bilm(*encode_sentences([words])).layers[0, -1].numpy()
        framed = [VOCABULARY.number(w) for w in ["<S>", *words, "</S>"]]
        D = top.shape[-1] // 2
        for k in range(len(words) + 1):
            for d, (h, target) in enumerate(
                [(top[k, :D], framed[k + 1]), (top[k + 1, D:], framed[k])]
            ):
                logits = weight @ h + bias
                sums[d] -= logits[target] - np.log(np.exp(logits).sum())
            count += 1
    return math.exp(sums[0] / count), math.exp(sums[1] / count)


@pytest.mark.parametrize("smallest", [1, 2**16], ids=["packed", "plain"])
@pytest.mark.parametrize("batch_words", [1, 30, 10_000])
def test_perplexity_of_both_directions(
    model: LanguageModel, batch_words: int, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_MIN_WEIGHTS", smallest)
    monkeypatch.setattr(softmax, "_LOGITS_AT_ONCE", 5 * len(VOCABULARY))  # in parts of 5 rows
    found = measure_perplexity(model, VOCABULARY, SENTENCES, batch_words=batch_words)
    forward, backward = by_hand(model)
    assert found.forward == pytest.approx(forward, rel=1e-5)
    assert found.backward == pytest.approx(backward, rel=1e-5)
    assert found.average == pytest.approx((forward + backward) / 2, rel=1e-5)
    assert found.tokens == sum(len(words) + 1 for words in SENTENCES if words)
    assert found.unknown == pytest.approx(2 / 29)


def test_the_order_of_sentences_does_not_matter_and_a_call_is_repeatable(
    model: LanguageModel,
) -> None:
    first = measure_perplexity(model, VOCABULARY, SENTENCES)
    assert measure_perplexity(model, VOCABULARY, SENTENCES) == first
    turned = measure_perplexity(model, VOCABULARY, SENTENCES[::-1])
    assert turned.average == pytest.approx(first.average, rel=1e-6)


def test_a_training_model_stays_one(model: LanguageModel) -> None:
    model.train()
    measure_perplexity(model, VOCABULARY, SENTENCES)
    assert model.training


def test_no_sentences_are_refused(model: LanguageModel) -> None:
    with pytest.raises(InputError, match="no sentences"):
        measure_perplexity(model, VOCABULARY, [[]])
