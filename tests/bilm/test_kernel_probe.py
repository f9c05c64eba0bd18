"""Whether kernels are usable. Oracle: a device that lacks one requirement at a time."""

import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from elmore.bilm import kernels
from tests.gpu import DEVICE, needs_kernels


@pytest.fixture
def new_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tensor]:
    """A stub of a tensor on a GPU that has not been probed yet."""
    monkeypatch.delenv("ELMORE_KERNELS", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    kernels._supported.cache_clear()
    yield cast("Tensor", SimpleNamespace(is_cuda=True, device=torch.device("cuda:0")))
    kernels._supported.cache_clear()


def test_gpu_whose_probe_succeeds_is_usable_and_probed_once(
    new_gpu: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = []
    probe = SimpleNamespace(run_probe=probed.append)
    monkeypatch.setitem(sys.modules, "elmore.bilm.kernels.probe", probe)
    with warnings.catch_warnings(action="error"):
        assert [kernels.usable(new_gpu) for _ in range(3)] == [True] * 3
    assert probed == [new_gpu.device]


def no_compiler(device: torch.device) -> None:
    raise RuntimeError("Failed to find C compiler")


def old_pytorch(device: torch.device) -> None:
    raise TypeError("bmm() got an unexpected keyword argument 'out_dtype'")


@pytest.mark.parametrize(
    ("run_probe", "reason"),
    [
        (no_compiler, "cuda:0: RuntimeError: Failed to find C compiler"),
        (old_pytorch, "cuda:0: TypeError: bmm"),
    ],
)
def test_failed_probe_warns_once_and_falls_back(
    run_probe: Callable[[torch.device], None],
    reason: str,
    new_gpu: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = SimpleNamespace(run_probe=run_probe)
    monkeypatch.setitem(sys.modules, "elmore.bilm.kernels.probe", probe)
    with pytest.warns(RuntimeWarning, match=reason) as caught:
        assert [kernels.usable(new_gpu) for _ in range(3)] == [False] * 3
    assert len(caught) == 1


def test_warning_says_that_triton_is_missing(
    new_gpu: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "elmore.bilm.kernels.probe", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.warns(RuntimeWarning, match="cuda:0: ModuleNotFoundError: .*triton"):
        assert not kernels.usable(new_gpu)


def test_old_gpu_is_not_probed(new_gpu: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    with pytest.warns(RuntimeWarning, match=r"compute capability 7\.5, and 8\.0 is needed"):
        assert not kernels.usable(new_gpu)


def test_environment_variable_disables_the_kernels_without_a_warning(
    new_gpu: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMORE_KERNELS", "0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    with warnings.catch_warnings(action="error"):
        assert not kernels.usable(new_gpu)


def test_kernels_are_not_usable_on_a_cpu() -> None:
    assert not kernels.usable(torch.zeros(1))


class TestProbe:
    pytestmark = needs_kernels
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32  # the interpreter has no bfloat16

    def test_probe_succeeds_on_this_device(self) -> None:
        from elmore.bilm.kernels.probe import run_probe

        run_probe(torch.device(DEVICE), self.dtype)

    def test_probe_fails_on_a_wrong_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from elmore.bilm.kernels import probe

        monkeypatch.setattr(probe, "multiply", lambda a, b, out: out.fill_(1))
        with pytest.raises(RuntimeError, match="wrong result"):
            probe.run_probe(torch.device(DEVICE), self.dtype)
