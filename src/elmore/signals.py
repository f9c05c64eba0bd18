"""Ctrl-C, SIGTERM from a scheduler, and SIGHUP from a closed terminal."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""Signals that stop a run. Windows has no SIGHUP."""


class InterruptedRunError(Exception):
    """A run was stopped by a signal. The message says what was saved and how to continue."""


@contextmanager
def handled_signals(handler: Callable[..., object]) -> Iterator[None]:
    """Handle `SIGNALS` in the block, except those that are ignored, as SIGHUP is by `nohup`.

    Outside the main thread, where Python delivers no signals, this does nothing.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: set outside Python
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def interruption(
    on_signal: Callable[[], None] = lambda: None,
) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether one of `SIGNALS` has been received.

    The first one only sets this flag. A second one raises `KeyboardInterrupt`.

    Args:
        on_signal: Called at the first signal, for example to tell the user what happens next.
    """
    received = threading.Event()

    def handle(*_: object) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()
        on_signal()

    with handled_signals(handle):
        yield received.is_set


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Handle signals after the block.

    A handler that raises, as that of Ctrl-C, can interrupt the code of a lock between taking it and
    entering its block. The lock is then never released, and the threads that need it hang. It can
    also interrupt a function that a C library calls, which leaves the library in an unknown state.
    """
    received: list[int] = []
    try:
        with handled_signals(lambda number, _: received.append(number)):
            yield
    finally:
        for number in received:
            signal.raise_signal(number)
