"""The CRF. Oracle: enumeration of all tag sequences."""

import math
from itertools import pairwise, product

import pytest
import torch

from elmore.tasks.modules.crf import (
    CRF,
    FORBIDDEN,
    Transitions,
    constraints,
    log_partition,
    viterbi,
)
from elmore.tasks.spans import may_follow_bioes

K, LENGTHS = 3, (4, 1, 3)


@pytest.fixture
def crf() -> CRF:
    crf = CRF(Transitions(torch.zeros(K, K), torch.zeros(K), torch.zeros(K)))
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(len(LENGTHS), max(LENGTHS), K)


MASK = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]


def score_of(path: tuple[int, ...], scores: torch.Tensor, transitions: Transitions) -> float:
    total = float(transitions.first[path[0]] + transitions.last[path[-1]])
    total += sum(float(scores[t, tag]) for t, tag in enumerate(path))
    return total + sum(float(transitions.follow[a, b]) for a, b in pairwise(path))


def test_likelihood_and_viterbi_equal_enumeration(crf: CRF, scores: torch.Tensor) -> None:
    transitions = Transitions(*(x.detach() for x in crf.transitions()))
    tags = torch.randint(K, MASK.shape)
    nll = crf(scores, tags, MASK)
    best = crf.decode(scores, MASK)
    log_z = log_partition(scores, MASK, transitions)
    for b, length in enumerate(LENGTHS):
        paths = product(range(K), repeat=length)
        score = {path: score_of(path, scores[b], transitions) for path in paths}
        total = torch.tensor(list(score.values()), dtype=torch.float64).logsumexp(0).item()
        assert log_z[b].item() == pytest.approx(total, abs=1e-4)
        gold = score[tuple(tags[b, :length].tolist())]
        assert nll[b].item() == pytest.approx(total - gold, abs=1e-4)
        assert tuple(best[b]) == max(score, key=score.__getitem__)


def test_probabilities_of_tags_equal_enumeration(crf: CRF, scores: torch.Tensor) -> None:
    transitions = Transitions(*(x.detach() for x in crf.transitions()))
    spans = [(0, 1, [2, 0]), (0, 3, [1]), (1, 0, [0]), (2, 0, [1, 1, 2])]
    actual = crf.probabilities(scores, MASK, spans)
    for (b, start, tags), probability in zip(spans, actual, strict=True):
        paths = list(product(range(K), repeat=LENGTHS[b]))
        weight = {path: math.exp(score_of(path, scores[b], transitions)) for path in paths}
        matching = sum(
            weight[path] for path in paths if list(path[start : start + len(tags)]) == tags
        )
        assert probability == pytest.approx(matching / sum(weight.values()), rel=1e-4)
    assert crf.probabilities(scores, MASK, []) == []
    [undefined] = crf.probabilities(scores * math.nan, MASK, [(0, 0, [1])])
    assert math.isnan(undefined)


def test_probabilities_in_a_long_sentence_are_the_gradient_of_the_partition(crf: CRF) -> None:
    """Oracle: the derivative of log Z by the score of a tag is the probability of the tag."""
    scores = torch.randn(1, 2_000, K)
    mask = torch.ones(1, 2_000, dtype=torch.bool)
    exact = scores.double().requires_grad_()
    log_partition(exact, mask, Transitions(*(x.double() for x in crf.transitions()))).backward()
    assert exact.grad is not None
    spans = [(0, t, [t % K]) for t in range(0, 2_000, 7)]
    expected = [exact.grad[0, t, tag].item() for _, t, [tag] in spans]
    assert crf.probabilities(scores, mask, spans) == pytest.approx(expected, rel=1e-9)


def test_padding_does_not_affect_the_likelihood_or_the_best_path(
    crf: CRF, scores: torch.Tensor
) -> None:
    tags = torch.randint(K, MASK.shape)
    together = crf(scores, tags, MASK)
    for b, n in enumerate(LENGTHS):
        alone = crf(scores[b : b + 1, :n], tags[b : b + 1, :n], MASK[b : b + 1, :n])
        torch.testing.assert_close(together[b : b + 1], alone)
        assert crf.decode(scores[b : b + 1, :n], MASK[b : b + 1, :n]) == [
            crf.decode(scores, MASK)[b]
        ]


def test_viterbi_path_has_no_forbidden_transition() -> None:
    tags = ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B"]
    transitions = constraints(tags, may_follow_bioes)
    assert transitions.follow[tags.index("B-A"), tags.index("E-B")] == FORBIDDEN
    scores, mask = 10 * torch.randn(50, 7, len(tags)), torch.ones(50, 7).bool()
    for path in viterbi(scores, mask, transitions):
        names = [None, *(tags[i] for i in path), None]
        assert all(may_follow_bioes(a, b) for a, b in pairwise(names))


def test_gradients_are_finite_under_constraints() -> None:
    tags = ["O", "B-A", "I-A", "E-A", "S-A"]
    crf = CRF(constraints(tags, may_follow_bioes))
    scores = torch.randn(2, 3, len(tags), requires_grad=True)
    crf(scores, torch.tensor([[0, 4, 0], [1, 2, 3]]), torch.ones(2, 3).bool()).sum().backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
