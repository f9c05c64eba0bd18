"""Oracles: bilm-tf's losses in numpy; draws one by one; the full softmax when all is drawn."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.bilm import softmax as softmax_module
from elmore.bilm.softmax import Negatives, Softmax, log_expected_counts, log_uniform
from tests.oracles import training as oracle


@pytest.fixture
def softmax() -> Softmax:
    module = Softmax(dim=6, vocab_size=40)
    with torch.no_grad():
        module.bias.normal_()
    return module


@pytest.fixture
def h() -> Tensor:
    return torch.randn(11, 6, requires_grad=True)


def test_sampled_loss_matches_numpy(softmax: Softmax, h: Tensor) -> None:
    ids = [0, 3, 7, 8, 21, 39]
    targets = torch.tensor([3, 3, 0, 1, 2, 39, 38, 5, 21, 20, 8])  # some of them drawn as well
    found = softmax(h, targets, Negatives(torch.tensor(ids), torch.tensor(9.0)))
    weight, bias = softmax.weight.detach().numpy(), softmax.bias.detach().numpy()
    expected = [
        oracle.sampled_nll(x, int(y), weight, bias, ids, tries=9)
        for x, y in zip(h.detach().numpy(), targets, strict=True)
    ]
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5)


def test_full_loss_matches_numpy(softmax: Softmax, h: Tensor) -> None:
    targets = torch.randint(40, (11,))
    weight, bias = softmax.weight.detach().numpy(), softmax.bias.detach().numpy()
    expected = [
        oracle.full_nll(x, int(y), weight, bias)
        for x, y in zip(h.detach().numpy(), targets, strict=True)
    ]
    np.testing.assert_allclose(softmax(h, targets).detach().numpy(), expected, rtol=1e-5)


def test_parts_of_the_full_loss_do_not_show(
    softmax: Softmax, h: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = torch.randint(40, (11,))
    params = [h, softmax.weight, softmax.bias]
    whole = torch.autograd.grad(softmax(h, targets).sum(), params)
    monkeypatch.setattr(softmax_module, "_LOGITS_AT_ONCE", 130)  # three rows
    parts = torch.autograd.grad(softmax(h, targets).sum(), params)
    torch.testing.assert_close(parts, whole)


def test_full_loss_never_holds_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    softmax = Softmax(dim=2, vocab_size=1000)
    h, targets = torch.randn(64, 2, requires_grad=True), torch.randint(1000, (64,))
    monkeypatch.setattr(softmax_module, "_LOGITS_AT_ONCE", 4000)
    kept = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        softmax(h, targets).sum().backward()
    assert max(kept) <= 4000


def test_drawing_every_word_gives_the_full_softmax(softmax: Softmax, h: Tensor) -> None:
    targets = torch.randint(40, (11,))
    # After very many draws every word is expected, so that nothing is corrected.
    everything = Negatives(torch.randperm(40), torch.tensor(1e6))
    torch.testing.assert_close(softmax(h, targets, everything), softmax(h, targets))


def test_only_rows_in_use_have_a_gradient(softmax: Softmax, h: Tensor) -> None:
    negatives = Negatives(torch.tensor([4, 9]), torch.tensor(2.0))
    softmax(h, torch.full((11,), 17), negatives).sum().backward()
    assert softmax.weight.grad is not None
    assert softmax.weight.grad.any(dim=1).nonzero().flatten().tolist() == [4, 9, 17]


def test_log_uniform_sums_to_one_and_matches_numpy() -> None:
    p = log_uniform(1000, torch.device("cpu"))
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    assert p[[0, 17, 999]].tolist() == pytest.approx(
        [oracle.probability(k, 1000) for k in (0, 17, 999)], rel=1e-5
    )
    counts = log_expected_counts(torch.tensor(50.0), 1000).exp()
    assert counts[[0, 17, 999]].tolist() == pytest.approx(
        [oracle.expected_count(k, 1000, 50) for k in (0, 17, 999)], rel=1e-4
    )


def test_draws_are_different_words_and_repeat_with_the_generator() -> None:
    softmax = Softmax(dim=2, vocab_size=5000)
    draw = torch.Generator().manual_seed(3)
    start = draw.get_state()
    first, second = softmax.draw(800, draw), softmax.draw(800, draw)
    assert len(first.ids.unique()) == 800
    assert first.ids.min() >= 0
    assert first.ids.max() < 5000
    assert set(first.ids.tolist()) != set(second.ids.tolist())
    draw.set_state(start)
    assert all(a.equal(b) for a, b in zip(first, softmax.draw(800, draw), strict=True))


def test_draws_are_distributed_as_repeated_draws_until_enough() -> None:
    """Oracle: TensorFlow's loop, one draw at a time."""
    V, S, runs = 30, 8, 4000
    softmax = Softmax(dim=2, vocab_size=V)
    ours, our_tries = torch.zeros(V), []
    for _ in range(runs):
        negatives = softmax.draw(S)
        ours[negatives.ids] += 1
        our_tries.append(negatives.tries.item())
    draw = np.random.default_rng(0)
    theirs, their_tries = np.zeros(V), []
    for _ in range(runs):
        found: set[int] = set()
        tries = 0
        while len(found) < S:
            found.add(int(math.exp(draw.random() * math.log(V + 1))) - 1)
            tries += 1
        theirs[list(found)] += 1
        their_tries.append(tries)
    # Four standard errors of the difference of two shares, of two means.
    np.testing.assert_allclose(ours / runs, theirs / runs, atol=4 * (0.5 / runs) ** 0.5)
    error = math.hypot(np.std(our_tries), np.std(their_tries)) / runs**0.5
    assert np.mean(our_tries) == pytest.approx(np.mean(their_tries), abs=4 * error)
    assert np.std(our_tries) == pytest.approx(np.std(their_tries), rel=0.1)


def test_asked_for_more_words_than_there_are_it_draws_all() -> None:
    negatives = Softmax(dim=2, vocab_size=7).draw(8192)
    assert sorted(negatives.ids.tolist()) == list(range(7))


def test_weights_are_drawn_as_the_released_code_draws_them() -> None:
    softmax = Softmax(dim=64, vocab_size=2000)
    assert softmax.weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert not softmax.bias.any()
