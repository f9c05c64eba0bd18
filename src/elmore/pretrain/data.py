"""Windows prepared by a background thread while the GPU computes."""

import queue
import threading
from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import torch

from elmore.text.windows import LMBatch, Windows

_QUEUE_SIZE = 4


class Prepared(NamedTuple):
    """A window, and the state of `Windows` after it."""

    batch: LMBatch
    state: dict[str, np.ndarray]


def prepare(windows: Windows, rows: slice, device: torch.device) -> Generator[Prepared, None, None]:
    """Yield an endless sequence of windows; for a GPU, they are prepared ahead in pinned memory."""
    if device.type == "cpu":  # nothing to overlap with
        while True:
            yield Prepared(windows.next(rows), windows.state())
    ready: queue.Queue[Prepared | BaseException] = queue.Queue(_QUEUE_SIZE)
    stopped = threading.Event()

    def work() -> None:
        try:
            while not stopped.is_set():
                batch = LMBatch(*(x.pin_memory() for x in windows.next(rows)))
                _put(ready, Prepared(batch, windows.state()), stopped)
        except BaseException as error:  # raised again in the consuming thread
            _put(ready, error, stopped)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


def _put(
    ready: "queue.Queue[Prepared | BaseException]",
    item: Prepared | BaseException,
    stopped: threading.Event,
) -> None:
    while not stopped.is_set():
        try:
            ready.put(item, timeout=0.1)
            return
        except queue.Full:
            continue
