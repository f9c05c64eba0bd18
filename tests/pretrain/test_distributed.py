"""Distributed pre-training. Oracle: a single process that trains on all rows.

The runs use Adagrad, whose first steps are proportional to the gradient, and no clipping. AdamW and
gradient clipping do not depend on the scale of the gradient: with them, a sum over processes would
give the same weights as the mean.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from elmore.pretrain.config import PretrainConfig, read_config
from elmore.pretrain.run import pretrain
from elmore.training.checkpoints import checkpoint_files
from tests.pretrain.conftest import SETTINGS

CHANGES = [
    *SETTINGS, "bilm.dropout=0.0", "training.epochs=1", "training.optimizer=adagrad",
    "training.lr=0.2", "training.clip_norm=1e9", "run.log_steps=1",
]  # fmt: skip

# Sends SIGTERM to every process at a given step, as a cluster does to preempt a job.
WORKER = """
import os, signal, sys
import elmore.pretrain.loop as loop
from elmore.cli import main
real = loop.Pretraining._train_step
def step(self, *args):
    if self.step == int(os.environ.get("STOP_AT", -1)):
        os.kill(os.getpid(), signal.SIGTERM)
    return real(self, *args)
loop.Pretraining._train_step = step
main()
"""


@pytest.fixture
def config() -> PretrainConfig:
    return read_config(size="tiny", changes=CHANGES)


def train_in_processes(
    count: int, text: Path, folder: Path, *changes: str, **env: object
) -> subprocess.CompletedProcess:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = folder.parent / "worker.py"
    script.write_text(WORKER)
    flags = [part for change in (*CHANGES, *changes) for part in ("--set", change)]
    command = [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}",
        f"--master-port={port}", str(script), "pretrain", str(text), "-o", str(folder),
        "--size", "tiny", "--cache", str(folder.parent / "c"), "--workers", "1",
        "--device", "cpu", *flags,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in env.items()}}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def assert_close_runs(actual: Path, expected: Path) -> None:
    """Compare weights, and the losses and gradient norms of every step, up to rounding errors."""
    for name in ("model", "softmax"):
        weights, reference = (load_file(run / f"{name}.safetensors") for run in (actual, expected))
        for key in reference:
            torch.testing.assert_close(weights[key], reference[key], atol=1e-5, rtol=1e-4)
    records, references = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (actual, expected)
    )
    assert len(references) > 20
    for record, reference in zip(records, references, strict=True):
        for name in {"step", "loss", "forward", "backward", "grad_norm"} & reference.keys():
            assert record[name] == pytest.approx(reference[name], rel=1e-4), (name, record["step"])


def test_processes_that_accumulate_gradients_equal_a_single_one(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    """Two processes accumulate the gradients of two rows each."""
    result = train_in_processes(2, text, tmp_path / "many", "training.accumulate=2")
    assert result.returncode == 0, result.stderr[-3000:]
    pretrain([text], tmp_path / "one", config, cache=tmp_path / "c", workers=1, device="cpu")
    assert_close_runs(tmp_path / "many", tmp_path / "one")


def test_one_process_resumes_a_run_of_two(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    interrupted = train_in_processes(2, text, tmp_path / "two", STOP_AT=12)
    assert interrupted.returncode != 0
    assert [p.name for p in checkpoint_files(tmp_path / "two" / "checkpoints")] == [
        "step-000000013.safetensors"
    ]
    for name, resume in (("two", True), ("one", False)):
        pretrain(
            [text], tmp_path / name, config, cache=tmp_path / "c", workers=1, device="cpu",
            resume=resume,
        )  # fmt: skip
    assert_close_runs(tmp_path / "two", tmp_path / "one")
