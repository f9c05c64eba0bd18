"""Runs that end when they are asked to: by Ctrl-C, or by SIGTERM from a scheduler."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class InterruptedRunError(Exception):
    """The run was asked to stop. A checkpoint was written; it can go on from there."""


@contextmanager
def interruption(
    on_ask: Callable[[], None] = lambda: None,
) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGINT or SIGTERM has asked the run to stop.

    Args:
        on_ask: Called when it is asked, for those who would otherwise wait without a word.
    """
    asked = threading.Event()

    def ask(*_: object) -> None:
        if asked.is_set():  # twice: somebody is in a hurry
            raise KeyboardInterrupt
        asked.set()
        on_ask()

    if threading.current_thread() is not threading.main_thread():  # signals go elsewhere
        yield asked.is_set
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
