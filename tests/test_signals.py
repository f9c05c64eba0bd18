"""Signals that stop a run. Oracle: the semantics of POSIX signals."""

import signal
import threading

import pytest

from elmore.signals import SIGNALS, interruption


@pytest.mark.parametrize("number", SIGNALS)
def test_second_signal_raises_and_handlers_are_restored(number: signal.Signals) -> None:
    previous = signal.signal(number, signal.default_int_handler)
    calls: list[None] = []
    try:
        with interruption(lambda: calls.append(None)) as interrupted:
            assert not interrupted()
            signal.raise_signal(number)
            assert interrupted()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        assert len(calls) == 1
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, previous)


@pytest.mark.parametrize("number", SIGNALS)
def test_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    """`nohup` ignores SIGHUP, and shells ignore SIGINT in background jobs."""
    previous = signal.signal(number, signal.SIG_IGN)
    try:
        with interruption() as interrupted:
            signal.raise_signal(number)
            assert not interrupted()
    finally:
        signal.signal(number, previous)


def test_flag_stays_unset_outside_the_main_thread() -> None:
    flags = []

    def run() -> None:
        with interruption() as interrupted:
            flags.append(interrupted())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert flags == [False]
