"""Run commands in the test process, and check exit codes and messages."""

import signal
import sys

import pytest

from elmore.cli import main
from elmore.signals import SIGNALS


class Result:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A function that runs a command in the test process."""

    def run(*args: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["elmore", *map(str, args)])
        before = {number: signal.getsignal(number) for number in SIGNALS}
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return Result(code, *capsys.readouterr())

    return run


def assert_rejected(result: Result, message: str) -> None:
    """Assert that a command printed one error message, no traceback, and exited with code 2."""
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert result.err.count("elmore:") == 1
