"""Progress. Oracle: the text on a stand-in of a terminal, and in a pipe."""

import io
import re
import sys

import pytest

from elmore.progress import track, with_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("total", [None, 4])
def test_bar_ends_with_the_total(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    """Also if the total was not known before: a bar that still moves looks unfinished."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert list(with_progress((c for c in "abcd"), "letters read", total)) == [*"abcd"]
    assert re.findall(r"(\S+) letters read", sys.stderr.getvalue())[-1] == "4/4"


def test_pipe_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr("elmore.progress._SECONDS_BETWEEN_LINES", 0)
    assert list(with_progress(range(2), "numbers read", 2)) == [0, 1]
    assert sys.stderr.getvalue() == "1 of 2 numbers read\n2 of 2 numbers read\n"


def test_progress_is_optional() -> None:
    assert list(track("ab", "letters", None)) == ["a", "b"]
    assert list(track("ab", "letters", lambda items, what: [what, *items])) == ["letters", "a", "b"]
