"""Graceful shutdown on Ctrl-C, or on SIGTERM from a scheduler."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class InterruptedRunError(Exception):
    """A run was stopped by a signal after it wrote a checkpoint; it can be resumed."""


@contextmanager
def interruption(
    on_signal: Callable[[], None] = lambda: None,
) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGINT or SIGTERM has been received.

    The first signal only sets this flag. A second one raises `KeyboardInterrupt`. Outside the main
    thread, where Python delivers no signals, the flag stays unset.

    Args:
        on_signal: Called at the first signal, for example to tell the user what happens next.
    """
    received = threading.Event()

    def handle(*_: object) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()
        on_signal()

    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
