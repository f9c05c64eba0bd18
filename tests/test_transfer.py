"""Oracle: the tensor itself."""

import numpy as np
import pytest
import torch

from elmore import transfer
from elmore.transfer import Fetcher, lend, to_device

DEVICES = ["cpu"]
if torch.cuda.is_available():
    DEVICES.append("cuda")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [0, 1, 999])
def test_there_and_back(
    device: str, dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_LEAST_LENT", 100)
    monkeypatch.setattr(transfer, "_MOST_LENT", 10_000)  # some lent, some copied, some too large
    tensors = [torch.randn(rows, 3, dtype=dtype) for _ in range(5)]
    with Fetcher() as fetcher:
        there = [to_device(x.T.contiguous(), torch.device(device)).T for x in tensors]
        found = [fetcher.start(x) for x in there]  # which do not lie in order
        for tensor, array in zip(tensors, found, strict=True):
            np.testing.assert_array_equal(array.result(), tensor.numpy(), strict=True)


@pytest.mark.gpu
@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a CUDA device")
def test_a_place_is_used_again_when_its_copy_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_SLOTS", 3)
    monkeypatch.setattr(transfer, "_LARGEST_SLOT", 100)
    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    tensors = [torch.arange(n % 50).to(kinds[n % 4]) for n in range(200)]
    torch.cuda._sleep(50_000_000)  # so that copies have to wait
    there = [to_device(x, torch.device("cuda")) for x in tensors]
    for found, tensor in zip(there, tensors, strict=True):
        assert torch.equal(found.cpu(), tensor)


def test_memory_is_lent_until_the_last_view_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_LEAST_LENT", 8)
    monkeypatch.setattr(transfer, "_MOST_LENT", 32)

    def is_lent(tensor: torch.Tensor, array: np.ndarray) -> bool:
        np.testing.assert_array_equal(array, tensor.numpy(), strict=True)
        return np.shares_memory(array, tensor.numpy())

    small, first, second, third = (torch.arange(n, dtype=torch.int16) for n in (3, 8, 8, 8))
    assert not is_lent(small, lend(small))  # dropped at once
    kept = lend(first)
    also_kept = lend(second)
    assert is_lent(first, kept)
    assert is_lent(second, also_kept)
    assert not is_lent(third, lend(third))
    view = kept.reshape(2, 4)[1:]
    del kept
    assert not is_lent(third, lend(third))
    np.testing.assert_array_equal(view, [[4, 5, 6, 7]])
    del view
    assert is_lent(third, lend(third))
