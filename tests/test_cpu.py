"""Simulated CPUs without int8 or AVX-512. Oracle: vectors in float32."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from tests.cpu import int8_problem


def test_int8_is_rejected_with_a_reason_on_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = type(torch.backends.quantized).__dict__["supported_engines"]
    monkeypatch.setattr(type(engines), "__get__", lambda *_: ["qnnpack"])  # as in PyTorch for ARM
    assert "int8 needs an x86 CPU" in (int8_problem() or "")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86 CPU")
def test_int8_is_available_on_x86() -> None:
    """Otherwise, all tests of int8 would be skipped without notice."""
    assert int8_problem() is None


EMBED = """
import numpy as np, elmore, torch
torch.set_num_threads(1)
sentences = [["He", "sat", "by", "the", "bank"], ["Banks", "fail"]]
exact, bf16 = (
    np.concatenate(elmore.load(device="cpu", precision=precision).embed(sentences), axis=1)
    for precision in ("fp32", "bf16")
)
norms = np.linalg.norm(exact, axis=-1) * np.linalg.norm(bf16, axis=-1)
assert ((exact * bf16).sum(axis=-1) / norms).min() > 0.9998
"""


def test_bf16_runs_on_a_cpu_without_avx512() -> None:
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    result = subprocess.run(
        [sys.executable, "-c", EMBED], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
