"""The linear probe. Oracle: a step of Adam in NumPy."""

import numpy as np
import pytest
import torch

from elmore.analysis.probe import ProbeConfig, accuracy, train_probe


def test_training_is_reproducible_from_its_seed() -> None:
    x, labels = torch.randn(500, 6), torch.randint(3, (500,))
    runs = []
    for seed in (0, 0, 1):
        torch.rand(1)  # the state of the global generator does not matter
        runs.append(train_probe(x, labels, x, labels, ProbeConfig(seed=seed, batch_size=32)).weight)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_first_step_equals_adam_on_a_softmax() -> None:
    """From zero weights, all labels have probability 1/K; Adam moves by -lr sign(gradient)."""
    x, labels = torch.randn(40, 6), torch.arange(40) % 3
    config = ProbeConfig(max_epochs=1, batch_size=40, learning_rate=0.01)
    probe = train_probe(x, labels, x, labels, config)
    gradient = (1 / 3 - np.eye(3)[labels.numpy()]).T @ x.numpy() / 40  # (K, D)
    np.testing.assert_allclose(probe.weight.detach(), -0.01 * np.sign(gradient), rtol=1e-3)


def test_training_stops_early_and_returns_the_best_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = torch.randn(40, 6), torch.arange(40) % 3
    unknown = torch.full((40,), -1)
    accuracies = []

    def record_accuracy(*args) -> float:
        accuracies.append(accuracy(*args))
        return accuracies[-1]

    monkeypatch.setattr("elmore.analysis.probe.accuracy", record_accuracy)
    best = train_probe(x, labels, x, unknown, ProbeConfig(patience=2))
    assert accuracies == [0.0] * 3
    first = train_probe(x, labels, x, unknown, ProbeConfig(max_epochs=1))
    assert torch.equal(best.weight, first.weight)
