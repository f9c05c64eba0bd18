"""Runs that are killed at any point and resumed. Oracle: an uninterrupted run."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

import elmore
from tests import kills
from tests.pretrain.conftest import SETTINGS
from tests.processes import SERVER

if not hasattr(os, "fork"):
    pytest.skip("needs os.fork", allow_module_level=True)

PRETRAIN = ["run.log_steps=1", "run.checkpoint_minutes=0"]  # a checkpoint after each step
TRAIN = [
    "words.dim=8", "words.min_count=1", "words.char_filters=4", "tagger.hidden=8",
]  # fmt: skip
CONLL = "Ada B-PER\nlives O\nin O\nLondon B-LOC\n. O\n\nParis B-LOC\nis O\nfar O\n. O\n"
# A short run is killed at every change of a file, a longer one at random moments.
TEXT_EPOCHS = {"points": 0.2, "random": 2}
EPOCHS = {"points": 2, "random": 10}
TIMES = {"seconds", "dev_seconds", "tokens_per_second"}


def with_settings(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def kill_and_resume(mode: str, folder: Path, *command: object) -> list[Path]:
    """Kill and resume runs of a command; return the folders of the completed runs."""
    folder.mkdir()
    process = SERVER.Process(
        target=kills.kill_and_resume, args=(mode, folder, [*map(str, command)])
    )
    process.start()
    process.join()
    assert process.exitcode == 0, (folder / "errors.txt").read_text()[-3000:]
    return sorted(path for path in folder.iterdir() if path.name.isdigit())


def read_metrics(file: Path) -> list[dict]:
    """Return the metrics, without durations and speeds."""
    lines = map(json.loads, file.read_text().splitlines())
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


def assert_same_run(actual: Path, expected: Path) -> None:
    """Assert that weights are bit-identical and metrics equal."""
    names = {path.name for path in expected.iterdir()}
    assert names <= {path.name for path in actual.iterdir()}
    for name in names:
        if name.endswith(".safetensors"):
            weights, reference = load_file(actual / name), load_file(expected / name)
            assert weights.keys() == reference.keys()
            assert all(np.array_equal(weights[key], reference[key]) for key in reference), name
    assert read_metrics(actual / "metrics.jsonl") == read_metrics(expected / "metrics.jsonl")


@pytest.mark.parametrize("mode", ["points", "random"])
def test_resumed_pretraining_equals_an_uninterrupted_run(mode: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sees it .\na dog likes us .\n" * 12)
    runs = kill_and_resume(
        mode, tmp_path / "runs", "pretrain", tmp_path / "text.txt", "-o", "out", "--size", "tiny",
        "--cache", "cache", "--workers", 1, "--device", "cpu",
        *with_settings(*SETTINGS, *PRETRAIN, f"training.epochs={TEXT_EPOCHS[mode]}"),
    )  # fmt: skip
    for run in runs:
        assert_same_run(run / "out", tmp_path / "runs" / "uninterrupted" / "out")


@pytest.mark.parametrize("mode", ["points", "random"])
def test_resumed_task_training_equals_an_uninterrupted_run(mode: str, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(CONLL)
    runs = kill_and_resume(
        mode, tmp_path / "runs", "train", "ner", "--train", tmp_path / "a.conll",
        "--dev", tmp_path / "a.conll", "-o", "out", "--no-elmo", "--device", "cpu",
        *with_settings(*TRAIN, f"training.epochs={EPOCHS[mode]}"),
    )  # fmt: skip
    for run in runs:
        assert_same_run(run / "out", tmp_path / "runs" / "uninterrupted" / "out")


@pytest.mark.parametrize("mode", ["points", "random"])
def test_resumed_embedding_equals_an_uninterrupted_run(
    mode: str, tmp_path: Path, embedder: elmore.Embedder
) -> None:
    embedder.save(tmp_path / "model")
    lines = [" ".join(f"{i}-{j}" for j in range(10)) for i in range(24)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    runs = kill_and_resume(
        mode, tmp_path / "runs", "embed", tmp_path / "text.txt", "-m", tmp_path / "model",
        "-o", "out.h5", "--layers", "top", "--tokenizer", "whitespace", "--device", "cpu",
    )  # fmt: skip
    with h5py.File(tmp_path / "runs" / "uninterrupted" / "out.h5") as file:
        expected = [file[str(i)][...] for i in range(len(lines))]
    for run in runs:
        assert {path.name for path in run.rglob("*")} <= {"out.h5", "out.h5.parts", ".out.h5.lock"}
        with h5py.File(run / "out.h5") as file:
            assert json.loads(file["sentence_to_index"][0]) == {
                line: str(i) for i, line in enumerate(lines)
            }
            for i, vectors in enumerate(expected):
                np.testing.assert_array_equal(file[str(i)], vectors)
