"""Oracles: the moving average's recurrence in numpy, and a clock that the test sets."""

import math
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from elmore.tasks import read_task_config, train_task
from elmore.tasks.fit import Fit
from elmore.tasks.task import TaskModel
from elmore.training.interruption import InterruptedRunError

SMALL = [
    "words.dim=4", "words.min_count=1", "words.char_filters=0", "tagger.hidden=3",
    "tagger.num_layers=1", "training.batch_size=1", "elmo.place=none",
]  # fmt: skip


def new_fit(conll: Path, folder: Path, *changes: str) -> Fit:
    """A training that is about to begin."""
    made: list[Fit] = []
    config = read_task_config("ner", changes=[*SMALL, *changes])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InterruptedRunError):
        patch.setattr(Fit, "run", lambda fit, _: made.append(fit) or iter(()))
        train_task("ner", folder, train=[conll], dev=conll, config=config, device="cpu")
    return made[0]


def weights(model: TaskModel) -> np.ndarray:
    return np.concatenate([p.detach().double().flatten() for p in model.parameters()])


@pytest.mark.parametrize("decay", [0.3, 0.999])
def test_the_average_begins_as_a_mean_of_a_few_steps(
    conll: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decay: float
) -> None:
    fit = new_fit(conll, tmp_path / "run", f"training.average={decay}", "training.epochs=3")
    expected, n = weights(fit.model), 0
    step = Fit._train_step

    def watch(fit: Fit, batch: object) -> Tensor:
        nonlocal expected, n
        loss = step(fit, batch)
        n += 1
        share = min(decay, n / (n + 9))
        expected = share * expected + (1 - share) * weights(fit.model)
        assert fit.average is not None
        np.testing.assert_allclose(weights(fit.average), expected, atol=1e-6)
        return loss

    monkeypatch.setattr(Fit, "_train_step", watch)
    assert len(list(fit.run())) == 3
    assert n == 12


def test_time_that_is_up_ends_the_epoch_and_the_training(conll: Path, tmp_path: Path) -> None:
    fit = new_fit(conll, tmp_path / "run")
    fit.deadline = -math.inf
    assert len(list(fit.run())) == 1
    assert fit.cut_short
    assert fit.complete
    assert fit.steps == 1


def test_a_run_that_was_stopped_is_not_complete_when_time_is_up_later(
    conll: Path, tmp_path: Path
) -> None:
    """Its weights are those of its last epoch, and not the best ones."""
    fit = new_fit(conll, tmp_path / "run")
    list(fit.run(lambda: fit.epoch == 1))
    fit.deadline = -math.inf
    assert not fit.cut_short
    assert not fit.complete


@pytest.mark.parametrize(("batch_size", "cut_short"), [(1, True), (4, False)])
def test_a_last_epoch_is_cut_short_if_examples_are_left(
    conll: Path, tmp_path: Path, batch_size: int, cut_short: bool
) -> None:
    changes = ["training.epochs=1", f"training.batch_size={batch_size}"]
    fit = new_fit(conll, tmp_path / "run", *changes)
    fit.deadline = -math.inf
    list(fit.run())
    assert fit.complete
    assert fit.cut_short == cut_short
