"""Small data files in the standard formats, and a tiny biLM on disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.tasks import read_task_config, train_task
from tests.cli.conftest import run  # noqa: F401

SENTENCES = """\
Ada B-PER
Lovelace I-PER
lived O
in O
London B-LOC
. O

Paris B-LOC
is O
far O
from O
New B-LOC
York I-LOC
. O

the O
bank O
paid O
Ada B-PER
. O

York B-PER
left O
London B-LOC
early O
. O
"""


def train_on(task: str, data: Path, folder: Path, changes: Sequence[str]) -> dict[str, Any]:
    """Train a task on a file that is also its dev set; return the summary."""
    config = read_task_config(task, None, changes)
    return train_task(task, folder, train=[data], dev=data, config=config, device="cpu")


@pytest.fixture
def conll(tmp_path: Path) -> Path:
    """Four labeled sentences. York is both a PER and part of a LOC, so labels depend on context."""
    path = tmp_path / "entities.conll"
    path.write_text(SENTENCES)
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny biLM with random weights."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bilm") / "model"
    Embedder(BiLM(BiLMConfig.tiny()), device="cpu").save(folder)
    return folder


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    """Random 16-dimensional vectors of a few words in GloVe's text format."""
    path = tmp_path / "glove.txt"
    rows = torch.randn(8, 16).tolist()
    words = ["the", "a", "is", "film", "man", "can", "sing", "."]
    lines = (f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows, strict=True))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def plots() -> None:
    """Plot the curves of runs, which takes as long as a short run, so that other tests skip it."""


@pytest.fixture(autouse=True)
def _skip_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "plots" not in request.fixturenames:
        monkeypatch.setattr("elmore.tasks.train.plot_task", lambda *_: None)
