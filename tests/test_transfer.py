"""Oracle: the tensor itself."""

import numpy as np
import pytest
import torch

from elmore import transfer
from elmore.transfer import Fetcher, to_device

DEVICES = ["cpu"]
if torch.cuda.is_available():
    DEVICES.append("cuda")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [0, 1, 999])
def test_there_and_back(
    device: str, dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_BYTES_AT_ONCE", 1024)  # many parts, the last one short
    tensors = [torch.randn(rows, 3, dtype=dtype) for _ in range(5)]
    with Fetcher() as fetcher:
        there = [to_device(x.T.contiguous(), torch.device(device)).T for x in tensors]
        found = [fetcher.start(x) for x in there]  # which do not lie in order
        for tensor, array in zip(tensors, found, strict=True):
            np.testing.assert_array_equal(array.result(), tensor.numpy(), strict=True)
