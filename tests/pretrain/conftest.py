"""A small text, and settings that train a tiny biLM on it in seconds."""

from pathlib import Path

import pytest

from elmore.pretrain.config import PretrainConfig, read_config
from elmore.pretrain.run import pretrain

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
    path.write_text("\n".join(lines * 6))
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


@pytest.fixture
def plots() -> None:
    """Plot the curves of runs, which takes as long as a short run, so that other tests skip it."""


@pytest.fixture(autouse=True)
def _skip_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "plots" not in request.fixturenames:
        monkeypatch.setattr("elmore.pretrain.run.plot_pretraining", lambda *_: None)
