"""A minimal kernel that needs the same software and hardware as the other kernels."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl

from elmore.bilm.kernels import multiply

_SIZE = 16  # the smallest tile of `tl.dot`


def run_probe(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> None:
    """Compile and run a kernel. Raise an exception if this fails or the result is wrong."""
    x = torch.arange(_SIZE, dtype=dtype, device=device).expand(_SIZE, _SIZE).contiguous()
    product, expected = torch.empty(2, 1, _SIZE, _SIZE, device=device)
    multiply(x[None], x[None], expected)
    with torch.cuda.device_of(x):
        _square[(1,)](x, product, _SIZE)
    if not torch.equal(product, expected):  # exact: small integers
        raise RuntimeError("a test kernel returned a wrong result")


@triton.jit
def _square(x, product, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    tile = tl.load(x + at)
    tl.store(product + at, tl.dot(tile, tile, input_precision="ieee"))
