"""Runs that are killed with SIGKILL, wherever they are. Oracle: a run that nobody disturbs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

import elmore
from tests.pretrain.conftest import SETTINGS

if not hasattr(os, "fork"):
    pytest.skip("needs os.fork", allow_module_level=True)

ROOT = Path(__file__).parents[1]
PRETRAIN = ["run.log_steps=1", "run.checkpoint_minutes=0"]  # a checkpoint after each step
TRAIN = [
    "words.dim=8", "words.min_count=1", "words.char_filters=4", "tagger.hidden=8",
]  # fmt: skip
CONLL = "Ada B-PER\nlives O\nin O\nLondon B-LOC\n. O\n\nParis B-LOC\nis O\nfar O\n. O\n"
# At every point of two steps or epochs; or at random moments of more.
TEXT_EPOCHS = {"points": 0.2, "random": 2}
EPOCHS = {"points": 2, "random": 10}
TIMES = {"seconds", "dev_seconds", "tokens_per_second"}


def with_settings(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def kill(how: str, folder: Path, *command: object) -> list[Path]:
    """Return the folders of the runs that were killed and completed."""
    folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kills", how, str(folder), *map(str, command)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(path for path in folder.iterdir() if path.name.isdigit())


def untimed(file: Path) -> list[dict]:
    """Return the lines of metrics, without what the clock decides."""
    lines = map(json.loads, file.read_text().splitlines())
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


def assert_same_run(found: Path, expected: Path) -> None:
    """Bit-equal weights, and equal metrics."""
    names = {path.name for path in expected.iterdir()}
    assert names <= {path.name for path in found.iterdir()}
    for name in names:
        if name.endswith(".safetensors"):
            ours, theirs = load_file(found / name), load_file(expected / name)
            assert ours.keys() == theirs.keys()
            assert all(np.array_equal(ours[key], theirs[key]) for key in theirs), name
    assert untimed(found / "metrics.jsonl") == untimed(expected / "metrics.jsonl")


@pytest.mark.parametrize("how", ["points", "random"])
def test_pretraining(how: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sees it .\na dog likes us .\n" * 12)
    runs = kill(
        how, tmp_path / "runs", "pretrain", tmp_path / "text.txt", "-o", "out", "--size", "tiny",
        "--cache", "cache", "--workers", 1, "--device", "cpu",
        *with_settings(*SETTINGS, *PRETRAIN, f"training.epochs={TEXT_EPOCHS[how]}"),
    )  # fmt: skip
    for run in runs:
        assert_same_run(run / "out", tmp_path / "runs" / "whole" / "out")


@pytest.mark.parametrize("how", ["points", "random"])
def test_task_training(how: str, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(CONLL)
    runs = kill(
        how, tmp_path / "runs", "train", "ner", "--train", tmp_path / "a.conll",
        "--dev", tmp_path / "a.conll", "-o", "out", "--no-elmo", "--device", "cpu",
        *with_settings(*TRAIN, f"training.epochs={EPOCHS[how]}"),
    )  # fmt: skip
    for run in runs:
        assert_same_run(run / "out", tmp_path / "runs" / "whole" / "out")


@pytest.mark.parametrize("how", ["points", "random"])
def test_embedding(how: str, tmp_path: Path, embedder: elmore.Embedder) -> None:
    embedder.save(tmp_path / "model")
    lines = [" ".join(f"{i}{j}" for j in range(40)) for i in range(250)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    runs = kill(
        how, tmp_path / "runs", "embed", tmp_path / "text.txt", "-m", tmp_path / "model",
        "-o", "out.h5", "--layers", "top", "--tokenizer", "whitespace", "--device", "cpu",
    )  # fmt: skip
    expected = embedder.embed([line.split() for line in lines], layers="top")
    for run in runs:
        with h5py.File(run / "out.h5") as file:
            assert json.loads(file["sentence_to_index"][0]) == {
                line: str(i) for i, line in enumerate(lines)
            }
            for i, vectors in enumerate(expected):
                np.testing.assert_allclose(file[str(i)], vectors, rtol=0, atol=1e-6)
