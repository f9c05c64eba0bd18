"""Many buffers to a file in few calls.

Each call gives the interpreter away while it copies, and has to wait until it gets it back: beside
a thread that prepares the next batch, a call for every sentence is mostly waiting.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from io import FileIO
from itertools import islice

import numpy as np

_MOST = 1024  # buffers that a system takes in one call


def _write_first(file: int, buffers: Sequence[memoryview]) -> int:
    return os.write(file, buffers[0])


# Windows has only the second.
_write_some: Callable[[int, Sequence[memoryview]], int] = getattr(os, "writev", _write_first)


def write_all(file: FileIO, buffers: Iterable[bytes | np.ndarray]) -> None:
    """Write buffers one behind the other, all of them."""
    views = (memoryview(buffer) for buffer in buffers)  # type: ignore[arg-type]
    left = deque(view.cast("B") for view in views if view.nbytes)
    while left:
        done = _write_some(file.fileno(), list(islice(left, _MOST)))
        while left and done >= len(left[0]):  # a system may take less than it is given
            done -= len(left.popleft())
        if done:
            left[0] = left[0][done:]
