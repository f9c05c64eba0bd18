"""The QA model. Oracles: the equations in NumPy, brute force, PyTorch's RNNs without padding."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.modules.rnn import BiGRU, BiLSTM
from elmore.tasks.qa.attention import BiAttention, SelfAttention
from elmore.tasks.qa.config import ReaderConfig
from elmore.tasks.qa.data import QaExample
from elmore.tasks.qa.model import QaBatch, Reader, best_spans
from elmore.tasks.qa.task import Qa
from elmore.tasks.qa.tokens import tokenize
from elmore.tasks.spans import Span
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words

PASSAGES = ["Ada was born in London and died in London , too .", "Paris .", "York"]
QUESTIONS = ["Where was Ada born ?", "What ?", "And where is the city of York now ?"]
VOCABULARY = sorted({word for text in [*PASSAGES, *QUESTIONS] for word in text.split()})
SPANS = [[Span(4, 5), Span(8, 9)], [Span(0, 1)], [Span(0, 1)]]
EXAMPLES = [
    QaExample(tokenize(question), tokenize(passage), spans, [])
    for question, passage, spans in zip(QUESTIONS, PASSAGES, SPANS, strict=True)
]


@pytest.fixture
def reader() -> Reader:
    vectors = torch.randn(len(VOCABULARY), 6).numpy()
    words = Words(
        WordsConfig(char_filters=3, dropout=0.0),
        ElmoConfig(place="none"),
        WordIndex([], VOCABULARY),
        WordVectors(VOCABULARY, vectors),
        num_layers=0,
        elmo_dim=0,
    )
    return Reader(ReaderConfig(hidden=5, max_answer=3), words).eval()


@pytest.fixture
def collate() -> Callable[[list[QaExample]], QaBatch]:
    encode = WordEncoder(
        WordIndex([], VOCABULARY), None, with_characters=True, device=torch.device("cpu")
    )
    return lambda examples: Qa().collate(examples, encode, {})


def trilinear(score: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    w1, bias, w2, w3 = (
        p.detach().numpy().squeeze()
        for p in (score.left.weight, score.left.bias, score.right.weight, score.both)
    )
    return float(w1 @ x + bias + w2 @ y + w3 @ (x * y))


def softmax(scores: list[float]) -> list[float]:
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


def test_bidirectional_attention_matches_the_equations() -> None:
    layer = BiAttention(4)
    passage, question = torch.randn(2, 5, 4), torch.randn(2, 3, 4)
    lengths, question_lengths = [5, 3], [2, 3]
    passage_mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    question_mask = torch.arange(3) < torch.tensor(question_lengths)[:, None]
    actual = layer(passage, question, passage_mask, question_mask).detach().numpy()
    for b in range(2):
        h, q = passage[b, : lengths[b]].numpy(), question[b, : question_lengths[b]].numpy()
        scores = [[trilinear(layer.score, x, y) for y in q] for x in h]
        weights = softmax([max(row) for row in scores])
        query_to_context = sum(p * x for p, x in zip(weights, h, strict=True))
        for i, x in enumerate(h):
            c = sum(p * y for p, y in zip(softmax(scores[i]), q, strict=True))
            expected = np.concatenate([x, c, x * c, query_to_context * c])
            np.testing.assert_allclose(actual[b, i], expected, rtol=1e-4, atol=1e-5)


def test_self_attention_matches_the_equations() -> None:
    layer = SelfAttention(4)
    x, lengths = torch.randn(2, 5, 4), [5, 3]
    actual = layer(x, torch.arange(5) < torch.tensor(lengths)[:, None]).detach().numpy()
    for b in range(2):
        h = x[b, : lengths[b]].numpy()
        for i in range(len(h)):
            others = [y for j, y in enumerate(h) if j != i]
            weights = softmax([trilinear(layer.score, h[i], y) for y in others])
            c = sum(p * y for p, y in zip(weights, others, strict=True))
            expected = np.concatenate([h[i], c, h[i] * c])
            np.testing.assert_allclose(actual[b, i], expected, rtol=1e-4, atol=1e-5)


def test_self_attention_output_of_a_single_word_is_zero() -> None:
    layer, x = SelfAttention(2), torch.randn(1, 3, 2, requires_grad=True)
    actual = layer(x, torch.tensor([[True, False, False]]))
    assert torch.equal(actual[0, 0], torch.cat([x[0, 0], torch.zeros(4)]))
    actual.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("length", [1, 3, 17])
def test_best_spans_equal_brute_force(length: int) -> None:
    start, end = torch.randn(2, 40, 6).log_softmax(dim=-1)
    first, last, log_p = best_spans(start, end, length)
    for b in range(40):
        score, i, j = max(
            (float(start[b, i] + end[b, j]), i, j)
            for i in range(6)
            for j in range(i, min(6, i + length))
        )
        assert (first[b].item(), last[b].item()) == (i, j)
        assert float(log_p[b]) == pytest.approx(score)


def test_loss_sums_the_probability_of_all_gold_spans(
    reader: Reader, collate: Callable[[list[QaExample]], QaBatch]
) -> None:
    batch = collate(EXAMPLES)
    start, end = (p.exp().tolist() for p in reader._log_p(batch))
    losses = [
        -math.log(sum(start[b][i] * end[b][j - 1] for i, j in spans))
        for b, spans in enumerate(SPANS)
    ]
    assert reader(batch).item() == pytest.approx(sum(losses) / 3, rel=1e-5)
    for b, example in enumerate(EXAMPLES):
        assert sum(start[b]) == pytest.approx(1)
        assert sum(end[b][len(example.passage.words) :]) == 0


def test_predictions_do_not_depend_on_the_batch(
    reader: Reader, collate: Callable[[list[QaExample]], QaBatch]
) -> None:
    losses = [reader(collate([example])).item() for example in EXAMPLES]
    assert reader(collate(EXAMPLES)).item() == pytest.approx(sum(losses) / 3, rel=1e-5)
    together = reader.predict(collate(EXAMPLES))
    in_reverse = reader.predict(collate(EXAMPLES[::-1]))[::-1]
    for example, actual, other in zip(EXAMPLES, together, in_reverse, strict=True):
        [separate] = reader.predict(collate([example]))
        assert separate[:3] == other[:3] == actual[:3]
        assert separate.probability == pytest.approx(actual.probability, rel=1e-5)
        assert other.probability == pytest.approx(actual.probability, rel=1e-5)
        assert example.passage.text[actual.start : actual.end] == actual.text
        assert len(actual.text.split()) <= 3
        assert 0 < actual.probability <= 1


def test_every_parameter_gets_a_finite_gradient(
    reader: Reader, collate: Callable[[list[QaExample]], QaBatch]
) -> None:
    reader.train()(collate(EXAMPLES)).backward()
    for name, parameter in reader.named_parameters():
        if name != "words.table.new":  # all word vectors are frozen
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("layer", [BiGRU(4, 3), BiLSTM(4, 3, num_layers=2)])
def test_recurrent_layers_ignore_padding(layer: BiGRU | BiLSTM) -> None:
    x, lengths = torch.randn(3, 6, 4), [2, 6, 1]
    actual: Tensor = layer(x, torch.tensor(lengths))
    assert actual.shape == (3, 6, layer.dim)
    for b, length in enumerate(lengths):
        expected, _ = layer.rnn(x[b : b + 1, :length])
        torch.testing.assert_close(actual[b, :length], expected[0])
        assert not actual[b, length:].any()
