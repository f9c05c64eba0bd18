"""Signals that wait until it is safe to handle them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Handle signals after the block.

    A handler that raises, as that of Ctrl-C, can interrupt the code of a lock between taking it and
    entering its block. The lock is then never released, and the threads that need it hang. It can
    also interrupt a function that a C library calls, which leaves the library in an unknown state.
    """
    received: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if callable(signal.getsignal(number)) and number not in handlers:
                handlers[number] = signal.signal(number, lambda *args: received.append(args))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number, frame in received:
        handlers[number](number, frame)
