"""Full and sampled softmax. Oracles: bilm-tf's losses in NumPy; TensorFlow's sampling loop."""

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


def test_sampled_loss_equals_numpy(softmax: Softmax, h: Tensor) -> None:
    ids = [0, 3, 7, 8, 21, 39]
    targets = torch.tensor([3, 3, 0, 1, 2, 39, 38, 5, 21, 20, 8])  # including accidental hits
    actual = softmax(h, targets, Negatives(torch.tensor(ids), torch.tensor(9.0)))
    weight, bias = softmax.weight.detach().numpy(), softmax.bias.detach().numpy()
    expected = [
        oracle.sampled_nll(x, int(y), weight, bias, ids, tries=9)
        for x, y in zip(h.detach().numpy(), targets, strict=True)
    ]
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=1e-5)


def test_full_loss_equals_numpy(softmax: Softmax, h: Tensor) -> None:
    targets = torch.randint(40, (11,))
    weight, bias = softmax.weight.detach().numpy(), softmax.bias.detach().numpy()
    expected = [
        oracle.full_nll(x, int(y), weight, bias)
        for x, y in zip(h.detach().numpy(), targets, strict=True)
    ]
    np.testing.assert_allclose(softmax(h, targets).detach().numpy(), expected, rtol=1e-5)


def test_gradients_of_the_full_loss_do_not_depend_on_the_chunk_size(
    softmax: Softmax, h: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = torch.randint(40, (11,))
    params = [h, softmax.weight, softmax.bias]
    expected = torch.autograd.grad(softmax(h, targets).sum(), params)
    monkeypatch.setattr(softmax_module, "_LOGITS_AT_ONCE", 130)  # three rows
    in_chunks = torch.autograd.grad(softmax(h, targets).sum(), params)
    torch.testing.assert_close(in_chunks, expected)


def test_full_loss_never_saves_all_logits_for_the_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    softmax = Softmax(dim=2, vocab_size=1000)
    h, targets = torch.randn(64, 2, requires_grad=True), torch.randint(1000, (64,))
    monkeypatch.setattr(softmax_module, "_LOGITS_AT_ONCE", 4000)
    sizes = []

    def record_size(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(record_size, lambda x: x):
        softmax(h, targets).sum().backward()
    assert max(sizes) <= 4000


def test_sampled_loss_with_all_words_sampled_equals_the_full_loss(
    softmax: Softmax, h: Tensor
) -> None:
    targets = torch.randint(40, (11,))
    # After a million draws, all expected counts are 1, so their logarithms are 0.
    all_words = Negatives(torch.randperm(40), torch.tensor(1e6))
    torch.testing.assert_close(softmax(h, targets, all_words), softmax(h, targets))


def test_only_sampled_words_and_targets_have_a_gradient(softmax: Softmax, h: Tensor) -> None:
    negatives = Negatives(torch.tensor([4, 9]), torch.tensor(2.0))
    softmax(h, torch.full((11,), 17), negatives).sum().backward()
    assert softmax.weight.grad is not None
    assert softmax.weight.grad.any(dim=1).nonzero().flatten().tolist() == [4, 9, 17]


def test_log_uniform_probabilities_equal_numpy() -> None:
    p = log_uniform(1000, torch.device("cpu"))
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    assert p[[0, 17, 999]].tolist() == pytest.approx(
        [oracle.probability(k, 1000) for k in (0, 17, 999)], rel=1e-5
    )
    counts = log_expected_counts(torch.tensor(50.0), 1000).exp()
    assert counts[[0, 17, 999]].tolist() == pytest.approx(
        [oracle.expected_count(k, 1000, 50) for k in (0, 17, 999)], rel=1e-4
    )


def test_samples_are_distinct_words_and_reproducible() -> None:
    softmax = Softmax(dim=2, vocab_size=5000)
    generator = torch.Generator().manual_seed(3)
    start = generator.get_state()
    first, second = softmax.draw(800, generator), softmax.draw(800, generator)
    assert len(first.ids.unique()) == 800
    assert first.ids.min() >= 0
    assert first.ids.max() < 5000
    assert set(first.ids.tolist()) != set(second.ids.tolist())
    generator.set_state(start)
    assert all(a.equal(b) for a, b in zip(first, softmax.draw(800, generator), strict=True))


def test_samples_have_the_distribution_of_tensorflows_sampler() -> None:
    """Oracle: TensorFlow's loop, which draws until there are S distinct words."""
    V, S, runs = 30, 8, 4000
    softmax = Softmax(dim=2, vocab_size=V)
    counts, tries = torch.zeros(V), []
    for _ in range(runs):
        negatives = softmax.draw(S)
        counts[negatives.ids] += 1
        tries.append(negatives.tries.item())
    rng = np.random.default_rng(0)
    expected_counts, expected_tries = np.zeros(V), []
    for _ in range(runs):
        words: set[int] = set()
        draws = 0
        while len(words) < S:
            words.add(int(math.exp(rng.random() * math.log(V + 1))) - 1)
            draws += 1
        expected_counts[list(words)] += 1
        expected_tries.append(draws)
    # Four standard errors of the difference between two frequencies, and between two means.
    np.testing.assert_allclose(counts / runs, expected_counts / runs, atol=4 * (0.5 / runs) ** 0.5)
    error = math.hypot(np.std(tries), np.std(expected_tries)) / runs**0.5
    assert np.mean(tries) == pytest.approx(np.mean(expected_tries), abs=4 * error)
    assert np.std(tries) == pytest.approx(np.std(expected_tries), rel=0.1)


def test_all_words_are_sampled_if_there_are_too_few() -> None:
    negatives = Softmax(dim=2, vocab_size=7).draw(8192)
    assert sorted(negatives.ids.tolist()) == list(range(7))


def test_weights_are_initialized_as_in_the_released_code() -> None:
    softmax = Softmax(dim=64, vocab_size=2000)
    assert softmax.weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert not softmax.bias.any()
