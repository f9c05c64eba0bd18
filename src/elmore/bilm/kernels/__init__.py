"""Fast paths on a CUDA device, each equal to a reference in elmore.bilm.

Matrices are multiplied in the type that `torch.autocast` asks for, bfloat16 in training, and
summed in float32; parameters, their gradients, cell states and losses stay in float32. Without
autocast the type is that of the parameters, float32 or bfloat16 in inference.
"""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def usable(x: Tensor) -> bool:
    """Tell whether the fast path can take this tensor; if not, the reference does."""
    return x.is_cuda and _available()


def compute_dtype(weight: Tensor) -> torch.dtype:
    """Return the type in which a matrix of weights is multiplied."""
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return weight.dtype


def multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Multiply batches of matrices into `out`, which may be wider than they are."""
    if a.dtype == out.dtype:
        torch.bmm(a, b, out=out)
    else:
        torch.bmm(a, b, out_dtype=out.dtype, out=out)


@cache
def _available() -> bool:
    """Tell whether there is Triton, and a PyTorch that sums products of bfloat16 in float32."""
    major, minor = map(int, torch.__version__.split(".")[:2])
    return (major, minor) >= (2, 8) and find_spec("triton") is not None
