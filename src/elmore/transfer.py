"""Arrays to a device and back, while the device goes on with its work."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

_BYTES_AT_ONCE = 2**26


def to_device(array: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """Copy to a device without a wait for the work that is under way there."""
    tensor = torch.as_tensor(array)
    if device.type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()  # memory that the device can read on its own
    return tensor.to(device, non_blocking=True)


class Fetcher:
    """Copies tensors to the host, each as soon as it is computed, beside later work.

    The device fills two pinned buffers by turns, and a thread empties one of them meanwhile.
    Pinned memory is dear to come by: this little is enough for tensors of any size.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._stream: torch.cuda.Stream | None = None
        self._buffers: list[Tensor] = []

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
        if self._stream is None:
            self._stream = torch.cuda.Stream(tensor.device)
            self._buffers = [
                torch.empty(_BYTES_AT_ONCE, dtype=torch.uint8, pin_memory=True) for _ in range(2)
            ]
        # numpy asks for huge pages, which are far fewer to come by.
        array = np.empty(tensor.shape, str(tensor.dtype).removeprefix("torch."))
        parts = zip(*(_parts(x) for x in (tensor, torch.from_numpy(array))), strict=True)
        copied: list[tuple[Tensor, Tensor, torch.cuda.Event]] = []
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(computed)
            for i, (there, here) in enumerate(parts):
                buffer = self._buffers[i % 2][: len(there)].copy_(there, non_blocking=True)
                copied.append((here, buffer, self._stream.record_event()))
                if i > 0:
                    _empty(*copied.pop(0))
        for last in copied:
            _empty(*last)
        return array


def _parts(tensor: Tensor) -> tuple[Tensor, ...]:
    return tensor.flatten().view(torch.uint8).split(_BYTES_AT_ONCE)


def _empty(here: Tensor, buffer: Tensor, filled: torch.cuda.Event) -> None:
    filled.synchronize()
    here.copy_(buffer)
