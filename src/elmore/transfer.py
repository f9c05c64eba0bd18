"""Arrays to a device and back, while the device goes on with its work."""

import weakref
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, local
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

# Pinned memory is dear to come by, and no other program can have it: what a caller keeps for good
# should not be of it. A small array is sooner copied than its place replaced.
_LEAST_LENT = 2**24
_MOST_LENT = 2**32
_SLOTS = 32  # copies on their way at once, before one has to wait
_LARGEST_SLOT = 2**22  # larger ones are rare, and not worth keeping
_lent: list[tuple[weakref.ref[np.ndarray], int]] = []
_lock = Lock()


def to_device(array: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """Copy to a device without a wait for the work that is under way there."""
    tensor = torch.as_tensor(array)
    if device.type == "cuda" and not tensor.is_cuda:
        return _slots.copy(tensor, device)
    return tensor.to(device)


class _Slots(local):
    """Memory that a device reads on its own, in places that are used again; each thread has some.

    PyTorch keeps such memory too. But who asks it for a little waits for another thread that asks
    for a large block, and that takes a quarter of a second.
    """

    def __init__(self) -> None:
        self._used: deque[tuple[Tensor, torch.cuda.Event]] = deque()  # and when that is over

    def copy(self, tensor: Tensor, device: torch.device) -> Tensor:
        """Copy by this thread alone: to wake others, as PyTorch does, takes longer."""
        data = tensor.detach().flatten().view(torch.uint8)
        memory = self._take(len(data))
        np.copyto(memory[: len(data)].numpy(), data.numpy())
        pinned = memory[: len(data)].view(tensor.dtype).view(tensor.shape)
        there = pinned.to(device, non_blocking=True)
        if len(memory) <= _LARGEST_SLOT:
            self._used.append((memory, torch.cuda.current_stream(device).record_event()))
        return there

    def _take(self, size: int) -> Tensor:
        """Return memory of that size or more, which nobody uses any longer."""
        if size <= _LARGEST_SLOT and len(self._used) >= _SLOTS:
            memory, copied = self._used.popleft()
            copied.synchronize()
            if len(memory) >= size:
                return memory
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)


_slots = _Slots()


class Fetcher:
    """Copies tensors to the host, each as soon as it is computed, beside later work.

    The device fills pinned memory by itself, and that memory is what the caller gets. PyTorch
    keeps it for the next tensor once the caller has dropped all of an array.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._stream: torch.cuda.Stream | None = None

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown(cancel_futures=True)

    def start(self, tensor: Tensor) -> "Future[np.ndarray]":
        """Begin to copy a tensor, which is to be left alone from now on."""
        if not tensor.is_cuda:
            return self._thread.submit(Tensor.numpy, tensor)
        tensor = tensor.contiguous()
        computed = torch.cuda.current_stream(tensor.device).record_event()
        return self._thread.submit(self._fetch, tensor, computed)

    @torch.inference_mode()
    def _fetch(self, tensor: Tensor, computed: torch.cuda.Event) -> np.ndarray:
        self._stream = self._stream or torch.cuda.Stream(tensor.device)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(computed)
            if tensor.nbytes > _MOST_LENT:
                return tensor.cpu().numpy()
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            pinned.copy_(tensor, non_blocking=True)
            self._stream.record_event().synchronize()
        return lend(pinned)


def lend(pinned: Tensor) -> np.ndarray:
    """Return pinned memory as an array, or a copy of it where callers hold much already."""
    lent = pinned.numpy()
    with _lock:
        _lent[:] = [(array, size) for array, size in _lent if array() is not None]
        held = sum(size for _, size in _lent)
        if lent.nbytes >= _LEAST_LENT and held + lent.nbytes <= _MOST_LENT:
            _lent.append((weakref.ref(lent), lent.nbytes))  # views of it keep it alive
            return lent
    # numpy asks for huge pages, which are far fewer to come by.
    array = np.empty(lent.shape, lent.dtype)
    torch.from_numpy(array).copy_(pinned)
    return array
