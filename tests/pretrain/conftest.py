"""A small text, settings that train a tiny biLM on it in seconds, and processes that do so."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elmore.pretrain import loop
from elmore.pretrain.config import PretrainConfig, read_config
from elmore.pretrain.run import pretrain
from tests.processes import Command

SETTINGS = [
    "training.streams=4",
    "training.window=5",
    "training.negatives=20",
    "training.epochs=2",
    "training.lr=0.01",
    "run.log_steps=5",
    "run.heldout=0.05",
    "run.evaluations=2",
    "text.tokenizer=whitespace",
    "text.sentences=lines",
    "vocabulary.min_count=1",
]


def write_text(folder: Path) -> Path:
    """Write text of a small grammar, which is easy to predict."""
    path = folder / "text.txt"
    subjects, verbs = ["the cat", "a dog", "my aunt"], ["sees", "likes"]
    objects = ["it", "them", "us"]
    lines = [f"{s} {v} {o} ." for s in subjects for v in verbs for o in objects]
    path.write_text("\n".join(lines * 4))
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path)


@pytest.fixture
def config() -> PretrainConfig:
    return read_config(size="tiny", changes=SETTINGS)


@pytest.fixture(scope="session")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an uninterrupted run with `text` and `config`, for tests that only read it."""
    folder = tmp_path_factory.mktemp("complete")
    config = read_config(size="tiny", changes=SETTINGS)
    pretrain(
        [write_text(folder)], folder / "run", config, cache=folder / "c", workers=1, device="cpu"
    )
    return folder / "run"


def start_pretraining(text: Path, folder: Path, settings: Sequence[str], **options: Any) -> Command:
    """Start `elmore pretrain` in another process."""
    changes = [part for setting in settings for part in ("--set", setting)]
    return Command(
        "pretrain", text, "-o", folder, "--size", "tiny", "--cache", folder.parent / "c",
        "--workers", "1", "--device", "cpu", *changes, **options,
    )  # fmt: skip


def kill_in_step(step: int, signum: int, save_at: int | None = None) -> None:
    """Make this process send itself a signal before a step, and save a checkpoint before that."""
    train_step = loop.Pretraining._train_step
    if signum != signal.SIGKILL:
        signal.signal(signum, signal.SIG_DFL)  # `nohup` ignores SIGHUP

    def train_step_or_kill(self: loop.Pretraining, *args: Any) -> Any:
        if self.step == save_at:
            loop.save_checkpoint(self)
        if self.step == step:
            os.kill(os.getpid(), signum)
        return train_step(self, *args)

    loop.Pretraining._train_step = train_step_or_kill  # type: ignore[method-assign]


@pytest.fixture
def plots() -> None:
    """Plot the curves of runs, which takes as long as a short run, so that other tests skip it."""


@pytest.fixture(autouse=True)
def _skip_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "plots" not in request.fixturenames:
        monkeypatch.setattr("elmore.pretrain.run.plot_pretraining", lambda *_: None)
