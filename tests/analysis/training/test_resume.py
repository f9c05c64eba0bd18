"""`train_missing`, interrupted and called again. Oracle: a call that is not interrupted."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

_CALL = """
import signal, sys
from pathlib import Path

from elmore.analysis.training.run import Bilm, Plan
from elmore.analysis.training.train import Resources, train_missing

signal.signal(signal.SIGTERM, signal.default_int_handler)
settings = ("training.epochs=8", "training.patience=9", "network.hidden=8", "words.dim=8")
plan = Plan(bilms={"tiny": Bilm("tiny", "hash")}, settings=settings, seeds=1)
runs = plan.runs("snli", None, test=True)
trained = train_missing(plan, runs, Path("data"), Path(sys.argv[1]), Resources(device="cpu"))
assert trained.problems == {}, trained.problems
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A part of SNLI, so that the training data are written to a temporary folder."""
    folder = tmp_path / "data" / "tasks" / "snli"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, size in (("train_subset", 60), ("dev", 1_060), ("test", 30)):
        pairs = (
            {
                "gold_label": label,
                "sentence1": f"A man sings {n} .",
                "sentence2": f"It is {label} .",
            }
            for n, label in enumerate(rng.choice(["entailment", "contradiction"], size))
        )
        (folder / f"snli_1.0_{name}.jsonl").write_text("".join(map(_line, pairs)))
    return tmp_path


def _line(pair: dict[str, str]) -> str:
    return f"{json.dumps(pair)}\n"


def call(folder: Path, output: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", _CALL, output], cwd=folder)


def test_interrupted_run_gives_the_same_scores(data: Path) -> None:
    assert call(data, "whole").wait(120) == 0
    interrupted = call(data, "parts")
    end = time.monotonic() + 60
    while not any(data.glob("parts/unfinished/*/checkpoints/*.safetensors")):
        assert time.monotonic() < end
        time.sleep(0.02)
    interrupted.terminate()
    assert interrupted.wait(60) != 0
    [metrics] = data.glob("parts/unfinished/*/metrics.jsonl")
    before = metrics.read_text().splitlines()
    assert len(before) < 8
    assert call(data, "parts").wait(120) == 0
    whole, parts = (
        json.loads(next(data.glob(f"{name}/runs/*.json")).read_text())
        for name in ("whole", "parts")
    )
    assert len(whole["dev_scores"]) == 8
    assert parts["dev_scores"] == whole["dev_scores"]
    assert parts["metrics"]["scores"] == whole["metrics"]["scores"]
    epochs = (json.loads(line)["dev"] for line in before)
    assert [epoch["accuracy"] for epoch in epochs] == whole["dev_scores"][: len(before)]
