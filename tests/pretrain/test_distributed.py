"""Oracle: one process over all rows."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from elmore.pretrain.config import read_config
from elmore.pretrain.run import pretrain
from tests.pretrain.conftest import SETTINGS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_processes_equal_one(text: Path, tmp_path: Path) -> None:
    settings = [*SETTINGS, "bilm.dropout=0.0", "training.epochs=1"]
    flags = [part for setting in settings for part in ("--set", setting)]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
        f"--master-port={free_port()}", "-m", "elmore", "pretrain", str(text),
        "-o", str(tmp_path / "many"), "--size", "tiny", "--cache", str(tmp_path / "c"),
        "--workers", "1", "--device", "cpu", *flags,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    one = read_config(size="tiny", changes=settings)
    pretrain([text], tmp_path / "one", one, cache=tmp_path / "c", workers=1, device="cpu")
    for name in ("model", "softmax"):
        expected = load_file(tmp_path / "one" / f"{name}.safetensors")
        found = load_file(tmp_path / "many" / f"{name}.safetensors")
        for key in expected:
            torch.testing.assert_close(found[key], expected[key], atol=1e-4, rtol=1e-3)
