"""Perplexity. Oracle: the probability of each word by a softmax in NumPy, sentence by sentence."""

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
def numpy_perplexity(model: LanguageModel) -> tuple[float, float]:
    weight, bias = model.softmax.weight.numpy(), model.softmax.bias.numpy()
    nll, count = [0.0, 0.0], 0
    for words in filter(None, SENTENCES):
        top = model.bilm(*encode_sentences([words])).layers[0, -1].numpy()
        ids = [VOCABULARY.word_to_id(w) for w in ["<S>", *words, "</S>"]]
        D = top.shape[-1] // 2
        for k in range(len(words) + 1):
            for d, (h, target) in enumerate([(top[k, :D], ids[k + 1]), (top[k + 1, D:], ids[k])]):
                logits = weight @ h + bias
                nll[d] -= logits[target] - np.log(np.exp(logits).sum())
            count += 1
    return math.exp(nll[0] / count), math.exp(nll[1] / count)


@pytest.mark.parametrize("smallest", [1, 2**16], ids=["packed", "plain"])
@pytest.mark.parametrize("batch_words", [1, 30, 10_000])
def test_forward_and_backward_perplexity_equal_numpy(
    model: LanguageModel, batch_words: int, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_MIN_WEIGHTS", smallest)
    monkeypatch.setattr(softmax, "_LOGITS_AT_ONCE", 5 * len(VOCABULARY))  # chunks of 5 rows
    actual = measure_perplexity(model, VOCABULARY, SENTENCES, batch_words=batch_words)
    forward, backward = numpy_perplexity(model)
    assert actual.forward == pytest.approx(forward, rel=1e-5)
    assert actual.backward == pytest.approx(backward, rel=1e-5)
    assert actual.average == pytest.approx((forward + backward) / 2, rel=1e-5)
    assert actual.tokens == sum(len(words) + 1 for words in SENTENCES if words)
    assert actual.unknown == pytest.approx(2 / 29)


def test_result_is_deterministic_and_independent_of_sentence_order(model: LanguageModel) -> None:
    first = measure_perplexity(model, VOCABULARY, SENTENCES)
    assert measure_perplexity(model, VOCABULARY, SENTENCES) == first
    in_reverse = measure_perplexity(model, VOCABULARY, SENTENCES[::-1])
    assert in_reverse.average == pytest.approx(first.average, rel=1e-6)


def test_training_mode_is_kept(model: LanguageModel) -> None:
    model.train()
    measure_perplexity(model, VOCABULARY, SENTENCES)
    assert model.training


def test_text_without_words_is_rejected(model: LanguageModel) -> None:
    with pytest.raises(InputError, match="no sentences"):
        measure_perplexity(model, VOCABULARY, [[]])
