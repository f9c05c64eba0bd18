"""Signals that wait until it is safe to handle them."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def deferred_signals() -> Iterator[Callable[[], None]]:
    """Handle signals after the block, or when the function that is yielded is called.

    A handler that raises, as that of Ctrl-C, can interrupt the code of a lock between taking it and
    entering its block. The lock is then never released, and the threads that need it hang. It can
    also interrupt a function that a C library calls, which leaves the library in an unknown state.
    """
    received: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Any] = {}

    def handle() -> None:
        while received:
            number, frame = received.pop(0)
            handlers[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if callable(signal.getsignal(number)) and number not in handlers:
                handlers[number] = signal.signal(
                    number, lambda number, frame: received.append((number, frame))
                )
    try:
        yield handle
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    handle()
