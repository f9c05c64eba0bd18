"""NVIDIA's Multi-Process Service, which lets several processes share a GPU efficiently."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory

_PROBE = "import torch; torch.ones(1, device='cuda')"


@contextmanager
def multi_process_service(environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Start the service, if it is installed, and yield the environment of its clients.

    With it, kernels of several processes overlap. Without it, processes take turns on the GPU, and
    small kernels leave most of it idle.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield environment
        return
    # A temporary folder, because the path of a socket must be short.
    with TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as pipe:
        folders = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
        clients = {**environment, **folders}
        subprocess.run([control, "-d"], env=clients, check=False)  # noqa: S603
        try:
            yield clients if _works(clients) else environment
        finally:
            subprocess.run([control], input=b"quit\n", env=clients, check=False)  # noqa: S603


def _works(environment: Mapping[str, str]) -> bool:
    """Return whether a process can use the GPU through the service."""
    try:
        probe = [sys.executable, "-c", _PROBE]
        subprocess.run(probe, env=environment, check=True, timeout=60, capture_output=True)  # noqa: S603
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    return True
