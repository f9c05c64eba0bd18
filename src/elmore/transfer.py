"""Copies to a device that do not wait for the work queued there."""

from collections import deque
from threading import local

import numpy as np
import torch
from torch import Tensor

_MAX_BUFFERS = 32  # copies in flight
_MAX_BYTES = 2**22  # of a buffer; larger copies are rare and not worth keeping memory for


def to_device(array: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """Copy to a device without waiting for the work queued there."""
    tensor = torch.as_tensor(array)
    if device.type == "cuda" and not tensor.is_cuda and tensor.numel():
        return _buffers.copy(tensor, device)
    return tensor.to(device)


class _StagingBuffers(local):
    """A ring of pinned staging buffers, one ring per thread.

    PyTorch caches pinned memory too, but a small request to its allocator waits while another
    thread allocates a large block, which takes a quarter of a second.
    """

    def __init__(self) -> None:
        self._used: deque[tuple[Tensor, torch.cuda.Event]] = deque()  # oldest copy first

    def copy(self, tensor: Tensor, device: torch.device) -> Tensor:
        data = tensor.detach().flatten().view(torch.uint8)
        memory = self._take(len(data))
        # numpy copies on this thread: PyTorch would wake its thread pool, which takes longer.
        np.copyto(memory[: len(data)].numpy(), data.numpy())
        pinned = memory[: len(data)].view(tensor.dtype).view(tensor.shape)
        copied = pinned.to(device, non_blocking=True)
        if len(memory) <= _MAX_BYTES:
            self._used.append((memory, torch.cuda.current_stream(device).record_event()))
        return copied

    def _take(self, size: int) -> Tensor:
        """Return at least `size` bytes of pinned memory that no copy uses."""
        if size <= _MAX_BYTES and len(self._used) >= _MAX_BUFFERS:
            memory, done = self._used.popleft()
            done.synchronize()
            if len(memory) >= size:
                return memory
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)


_buffers = _StagingBuffers()
