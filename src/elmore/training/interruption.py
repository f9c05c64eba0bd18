"""Graceful shutdown on Ctrl-C, SIGTERM from a scheduler, or SIGHUP from a closed terminal."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""Signals that stop a run. Windows has no SIGHUP."""


class InterruptedRunError(Exception):
    """A run was stopped by a signal. The message says what was saved and how to continue."""


@contextmanager
def interruption(
    on_signal: Callable[[], None] = lambda: None,
) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether one of `SIGNALS` has been received.

    The first one only sets this flag. A second one raises `KeyboardInterrupt`. Outside the main
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
    before = handle_signals(handle)
    try:
        yield received.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def handle_signals(handler: Callable[..., object]) -> dict[signal.Signals, Any]:
    """Handle `SIGNALS`, except those that are ignored, as SIGHUP is by `nohup`.

    Returns:
        The previous handlers.
    """
    return {
        number: signal.signal(number, handler)
        for number in SIGNALS
        if signal.getsignal(number) != signal.SIG_IGN
    }
