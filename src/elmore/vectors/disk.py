"""Many buffers to a file in few calls, beside other work.

Each call gives the interpreter away while it copies, and has to wait until it gets it back: beside
a thread that prepares the next batch, a call for every sentence is mostly waiting.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from itertools import chain, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

Piece = tuple[int, bytes | np.ndarray]
"""Something to write, and its place in the file."""

_BYTES_HELD = 2**26
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


class Beside:
    """A thread that does one thing after the other, while its owner prepares more.

    It has more than one to do, so that it need not wait for a busy interpreter between them.
    """

    AHEAD = 4

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def start(self, do: Callable[..., None], *args: Any) -> None:
        """Do something after all that was started before; wait if that is much."""
        while len(self._waiting) >= self.AHEAD:
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(do, *args))

    def wait(self) -> None:
        """Wait until all is done, and raise the first error."""
        while self._waiting:
            self._waiting.popleft().result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()


class Disk(FileIO):
    """A file for the HDF5 library, which writes a little here and there.

    What it is given is held, and a thread writes it, all that lies together in one call. The first
    error of the disk is kept for us, and after it writing is only pretended: the library can't be
    told that a disk is full. It ends the process, sooner or later.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self.error: OSError | None = None
        self._place = 0  # where the library believes to be
        self._end = 0  # of what it believes to have written
        self._held: list[Piece] = []
        self._size_held = 0
        self._leaving: dict[int, list[Piece]] = {}  # what the thread has to write
        self._out = FileIO(path, "r+")  # its own, with a place of its own
        self._beside = Beside()

    def put(self, place: int, buffer: bytes | np.ndarray) -> None:
        """Write at a place, sooner or later."""
        self._held.append((place, buffer))
        self._size_held += _size(buffer)
        self._end = max(self._end, place + _size(buffer))

    def start(self) -> None:
        """Begin to write what is held."""
        leaving, self._held, self._size_held = self._held, [], 0
        self._leaving[id(leaving)] = leaving
        self._beside.start(self._write_out, leaving)

    def finish(self) -> None:
        """Write what is held, or remember why not."""
        self.start()
        self._beside.wait()

    def check(self) -> None:
        """Raise what has been remembered."""
        if self.error:
            raise self.error

    # What the library calls.

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place of what has been written, be it in the file or not."""
        self._place = offset + (0, self._place, self._end)[whence]
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place

    def write(self, data: "Buffer") -> int:
        """Write a copy of the data, sooner or later."""
        copy = bytes(data)
        self.put(self._place, copy)
        self._place += len(copy)
        if self._size_held > _BYTES_HELD:
            self.start()
        return len(copy)

    def readinto(self, buffer: "Buffer") -> int:
        """Read what has been written."""
        end = self._place + memoryview(buffer).nbytes
        late = chain(self._held, *self._leaving.values())
        if any(place < end and self._place < place + _size(some) for place, some in late):
            self.finish()
        super().seek(self._place)
        size = super().readinto(buffer)
        self._place += size
        return size

    def truncate(self, size: int | None = None) -> int:
        """Set the size, when the file is closed."""
        self._end = self._place if size is None else size
        return self._end

    def close(self) -> None:
        """Write what is held, or remember why not, and close the file."""
        if not self.closed:
            self.start()
            self._beside.close()
            self._out.close()
            try:
                super().truncate(self._end)
            except OSError as error:
                self.error = self.error or error
        super().close()

    def _write_out(self, pieces: list[Piece]) -> None:
        try:
            for run in _runs(pieces):
                if not self.error:
                    self._out.seek(run[0][0])
                    write_all(self._out, [buffer for _, buffer in run])
        except OSError as error:
            self.error = error
        finally:
            del self._leaving[id(pieces)]


def _runs(pieces: list[Piece]) -> Iterable[list[Piece]]:
    """Group pieces that follow each other, or leave them as they came if some overlap."""
    ordered = sorted(pieces, key=itemgetter(0))
    ends = [place + _size(buffer) for place, buffer in ordered]
    places = [place for place, _ in ordered]
    if any(end > place for end, place in zip(ends, places[1:], strict=False)):
        return [[piece] for piece in pieces]  # the later of two is the one that counts
    starts = [i for i, place in enumerate(places) if i == 0 or ends[i - 1] != place]
    return [ordered[a:b] for a, b in pairwise([*starts, len(ordered)])]


def _size(buffer: bytes | np.ndarray) -> int:
    return buffer.nbytes if isinstance(buffer, np.ndarray) else len(buffer)
