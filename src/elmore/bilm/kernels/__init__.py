"""Triton kernels for CUDA devices. Each computes the same as a reference in plain PyTorch.

Matrices are multiplied in the dtype of `torch.autocast`, bfloat16 in training, and accumulated in
float32. Parameters, gradients, cell states and losses stay in float32. Without autocast, the dtype
is that of the parameters: float32 or bfloat16 in inference.

Set the environment variable ELMORE_KERNELS=0 to disable the kernels.
"""

import os
from functools import cache

import torch
from torch import Tensor

from elmore.errors import warn_user

_MIN_CAPABILITY = (8, 0)  # tensor cores for bfloat16, and the oldest GPUs that Triton supports


def usable(x: Tensor) -> bool:
    """Return whether the kernels can run on this tensor's device. If not, use the reference."""
    return x.is_cuda and os.environ.get("ELMORE_KERNELS") != "0" and _supported(x.device)


def compute_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype in which to multiply a weight matrix."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Multiply batches of matrices into `out`, which may have a wider dtype."""
    if a.dtype == out.dtype:
        torch.bmm(a, b, out=out)
    elif a.is_cuda:
        torch.bmm(a, b, out_dtype=out.dtype, out=out)
    else:  # `out_dtype` needs CUDA, but Triton's interpreter runs on a CPU
        torch.bmm(a.to(out.dtype), b.to(out.dtype), out=out)


@cache
def _supported(device: torch.device) -> bool:
    """Return whether the kernels run on a device. If not, warn once and give the reason."""
    reason = _failure(device)
    if reason is not None:
        warn_user(
            f"elmore's CUDA kernels do not run on {device}: {reason}. Slower PyTorch code is used "
            "instead. Set the environment variable ELMORE_KERNELS=0 to hide this warning.",
            RuntimeWarning,
        )
    return reason is None


def _failure(device: torch.device) -> str | None:
    """Return the reason why the kernels do not run on a device, or None if they do."""
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < _MIN_CAPABILITY:
        needed = ".".join(map(str, _MIN_CAPABILITY))
        return f"it has compute capability {major}.{minor}, and {needed} is needed"
    # No Triton, no C compiler, a cache folder that cannot be written, a PyTorch that is too old:
    # each raises a different type of exception.
    try:
        from elmore.bilm.kernels.probe import run_probe

        run_probe(device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
