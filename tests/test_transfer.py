"""Copies to a device. Oracle: the tensor before the copy."""

import pytest
import torch

from elmore import transfer
from elmore.transfer import to_device


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinned_memory_is_not_reused_before_its_copy_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "_MAX_BUFFERS", 3)
    monkeypatch.setattr(transfer, "_MAX_BYTES", 100)
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    tensors = [torch.arange(n % 50).to(dtypes[n % 4]) for n in range(200)]
    tensors += [torch.empty(2, 0, dtype=torch.int64), torch.empty(0, 3)]
    torch.cuda._sleep(50_000_000)  # delays the copies
    copies = [to_device(x, torch.device("cuda")) for x in tensors]
    for copied, tensor in zip(copies, tensors, strict=True):
        assert torch.equal(copied.cpu(), tensor)


def test_copies_equal_arrays_and_tensors_of_any_memory_layout() -> None:
    x = torch.arange(12).view(3, 4)
    for source in (x, x.T, x.numpy(), x[:, ::2]):
        assert torch.equal(to_device(source, torch.device("cpu")), torch.as_tensor(source))
