"""The task training loop. Oracles: the moving average in NumPy; step counts of known data."""

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from elmore.signals import InterruptedRunError
from elmore.tasks import read_task_config, train_task
from elmore.tasks.fit import Fit
from elmore.tasks.task import TaskModel
from elmore.tasks.time_limit import TimeLimit

SMALL = [
    "words.dim=4", "words.min_count=1", "words.char_filters=0", "tagger.hidden=3",
    "tagger.num_layers=1", "training.batch_size=1", "elmo.place=none",
]  # fmt: skip


def new_fit(conll: Path, folder: Path, *changes: str) -> Fit:
    """A `Fit` before its first epoch."""
    fits: list[Fit] = []
    config = read_task_config("ner", changes=[*SMALL, *changes])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InterruptedRunError):
        patch.setattr(Fit, "run", lambda fit, _: fits.append(fit) or iter(()))
        train_task("ner", folder, train=[conll], dev=conll, config=config, device="cpu")
    return fits[0]


def weights(model: TaskModel) -> np.ndarray:
    return np.concatenate([p.detach().double().flatten() for p in model.parameters()])


@pytest.mark.parametrize("decay", [0.3, 0.999])
def test_moving_average_matches_its_recurrence(
    conll: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decay: float
) -> None:
    fit = new_fit(conll, tmp_path / "run", f"training.average={decay}", "training.epochs=3")
    expected, steps = weights(fit.model), 0
    train_step = Fit._train_step

    def checked_step(fit: Fit, batch: object) -> Tensor:
        nonlocal expected, steps
        loss = train_step(fit, batch)
        steps += 1
        current_decay = min(decay, steps / (steps + 9))
        expected = current_decay * expected + (1 - current_decay) * weights(fit.model)
        assert fit.average is not None
        np.testing.assert_allclose(weights(fit.average), expected, atol=1e-6)
        return loss

    monkeypatch.setattr(Fit, "_train_step", checked_step)
    assert len(list(fit.run())) == 3
    assert steps == 12


def test_training_stops_before_an_epoch_that_would_exceed_the_limit(
    conll: Path, tmp_path: Path
) -> None:
    fit = new_fit(conll, tmp_path / "run")
    fit.limit = TimeLimit(60)
    for record in fit.run():
        if record["epoch"] == 2:
            fit.epoch_seconds = 3601
    assert fit.epoch == 2
    assert fit.cut_short
    assert fit.complete
    assert fit.steps == 8


def test_interrupted_run_is_not_complete_after_the_limit(conll: Path, tmp_path: Path) -> None:
    """An interrupted run holds the weights of its last epoch, not the best ones."""
    fit = new_fit(conll, tmp_path / "run")
    list(fit.run(lambda: fit.epoch == 1))
    fit.limit = TimeLimit(1e-9)
    assert not fit.cut_short
    assert not fit.complete


def test_limit_does_not_cut_the_last_epoch_short(conll: Path, tmp_path: Path) -> None:
    fit = new_fit(conll, tmp_path / "run", "training.epochs=1", "training.batch_size=4")
    fit.limit = TimeLimit(1e-9)  # over before the only step of the epoch ends
    list(fit.run())
    assert fit.complete
    assert not fit.cut_short
    assert fit.steps == 1
