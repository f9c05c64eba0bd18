"""Copies vectors to the host while the device computes the next batch.

J layers, N words of a batch, W words of a sentence, D width of a vector.
"""

import math
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.transfer import to_device

# Pinned memory is scarce: callers get it without a copy only for large blocks, and only up to this
# many bytes in total. Other results are copied to pageable memory.
_MIN_PINNED_BYTES = 2**24
_MAX_PINNED_BYTES = 2**32
_pinned: list[tuple[weakref.ref[np.ndarray], int]] = []
_lock = Lock()


class Fetcher:
    """Copies vectors to the host, each batch as soon as it is computed."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._stream: torch.cuda.Stream | None = None

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def start(
        self, vectors: Float[Tensor, "*J N D"], lengths: Sequence[int]
    ) -> Iterator[Float[np.ndarray, "*J W D"]]:
        """Start to copy the vectors of a batch; the iterator waits for the copy.

        It yields one array per sentence. From a CPU, each has its own memory. From a GPU, they are
        views of one block per batch.
        """
        if not vectors.is_cuda:
            if len(lengths) == 1 and vectors.untyped_storage().nbytes() == vectors.nbytes:
                return iter([vectors.numpy()])  # a long sentence: a copy would double the memory
            # Copies: a view would keep the vectors of the whole batch in memory.
            return (x.numpy().copy() for x in vectors.split(list(lengths), dim=-2))
        vectors = by_sentence(vectors, lengths)
        computed = torch.cuda.current_stream(vectors.device).record_event()
        return _views(self._thread.submit(self._fetch, vectors, computed), lengths)

    def _fetch(self, vectors: Float[Tensor, "*J N D"], computed: torch.cuda.Event) -> np.ndarray:
        self._stream = self._stream or torch.cuda.Stream(vectors.device)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(computed)
            if vectors.nbytes > _MAX_PINNED_BYTES:
                return vectors.cpu().numpy()
            pinned = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
            pinned.copy_(vectors, non_blocking=True)
            self._stream.record_event().synchronize()
        return to_numpy(pinned)


def _views(fetched: "Future[np.ndarray]", lengths: Sequence[int]) -> Iterator[np.ndarray]:
    """Cut a block that is ordered by sentence."""
    block = fetched.result()
    *layers, _, D = block.shape
    J, rows = math.prod(layers), block.reshape(-1, D)
    start = 0
    for length in lengths:
        end = start + J * length
        yield rows[start:end].reshape(*layers, length, D)
        start = end


def by_sentence(vectors: Float[Tensor, "*J N D"], lengths: Sequence[int]) -> Tensor:
    """Reorder from layer-major to sentence-major; the shape does not change.

    [a b c; A B C] with lengths 2 and 1 becomes a b A B c C.
    """
    *layers, N, D = vectors.shape
    J = math.prod(layers)
    if J == 1:
        return vectors.contiguous()
    n = to_device(np.array(lengths), vectors.device)
    sentence = torch.arange(len(n), device=n.device).repeat_interleave(J * n, output_size=J * N)
    first = (n.cumsum(0) - n)[sentence]
    inside = torch.arange(J * N, device=n.device) - J * first
    j, word = inside // n[sentence], inside % n[sentence]
    return vectors.reshape(J * N, D)[j * N + first + word].view_as(vectors)


def to_numpy(pinned: Tensor) -> np.ndarray:
    """Return pinned memory as an array, or a copy in pageable memory if callers hold too much.

    PyTorch reuses the memory once the caller has dropped all views of the array.
    """
    block = pinned.numpy()
    with _lock:
        _pinned[:] = [(array, size) for array, size in _pinned if array() is not None]
        held = sum(size for _, size in _pinned)
        if block.nbytes >= _MIN_PINNED_BYTES and held + block.nbytes <= _MAX_PINNED_BYTES:
            _pinned.append((weakref.ref(block), block.nbytes))  # views keep it alive
            return block
    # numpy uses huge pages for large arrays, so the copy causes far fewer page faults.
    array = np.empty(block.shape, block.dtype)
    torch.from_numpy(array).copy_(pinned)
    return array
