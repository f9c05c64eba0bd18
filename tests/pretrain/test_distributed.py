"""Distributed pre-training. Oracle: a single process that trains on all rows.

The runs use Adagrad, whose first steps are proportional to the gradient, and no clipping. AdamW and
gradient clipping do not depend on the scale of the gradient: with them, a sum over processes would
give the same weights as the mean.
"""

import json
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from elmore.pretrain.config import PretrainConfig, read_config
from elmore.pretrain.run import pretrain
from elmore.training.checkpoints import checkpoint_files
from tests.pretrain.conftest import SETTINGS, kill_in_step, start_pretraining

CHANGES = [
    *SETTINGS, "bilm.dropout=0.0", "training.epochs=1", "training.optimizer=adagrad",
    "training.lr=0.2", "training.clip_norm=1e9", "run.log_steps=1",
]  # fmt: skip


@pytest.fixture
def config() -> PretrainConfig:
    return read_config(size="tiny", changes=CHANGES)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
    assert len(references) > 15
    for record, reference in zip(records, references, strict=True):
        for name in {"step", "loss", "forward", "backward", "grad_norm"} & reference.keys():
            assert record[name] == pytest.approx(reference[name], rel=1e-4), (name, record["step"])


def test_processes_that_accumulate_gradients_equal_a_single_one(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    """`torchrun` starts two processes, which accumulate the gradients of two rows each."""
    changes = [*CHANGES, "training.accumulate=2"]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
        f"--master-port={free_port()}", "-m", "elmore", "pretrain", text, "-o", tmp_path / "many",
        "--size", "tiny", "--cache", tmp_path / "c", "--workers", "1", "--device", "cpu",
        *(part for change in changes for part in ("--set", change)),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    pretrain([text], tmp_path / "one", config, cache=tmp_path / "c", workers=1, device="cpu")
    assert_close_runs(tmp_path / "many", tmp_path / "one")


def test_one_process_resumes_a_run_of_two(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    """Both processes get SIGTERM in a step, as when a cluster preempts a job."""
    rendezvous = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        start_pretraining(
            text, tmp_path / "two", CHANGES, prepare=partial(kill_in_step, 12, signal.SIGTERM),
            env={**rendezvous, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [process.wait().code for process in processes] == [130, 130]
    assert [p.name for p in checkpoint_files(tmp_path / "two" / "checkpoints")] == [
        "step-000000013.safetensors"
    ]
    for name, resume in (("two", True), ("one", False)):
        pretrain(
            [text], tmp_path / name, config, cache=tmp_path / "c", workers=1, device="cpu",
            resume=resume,
        )  # fmt: skip
    assert_close_runs(tmp_path / "two", tmp_path / "one")
