"""What commands print."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def show(result: Any, text: str, *, as_json: bool) -> None:
    """Print the result of a command as JSON, with paths as strings; otherwise print the text."""
    if isinstance(result, tuple) and hasattr(result, "_asdict"):
        result = result._asdict()
    print(json.dumps(result, default=str) if as_json else text)


def count(number: int, noun: str) -> str:
    """Return for example `1 sentence` or `1,200 sentences`."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def rate(number: int, unit: str, seconds: float) -> str:
    """Return for example `(1,200 words in 0.5 s, 2,400 words/s)`."""
    speed = number / max(seconds, 1e-9)
    return f"({number:,} {unit} in {seconds:.1f} s, {speed:,.0f} {unit}/s)"


@contextmanager
def explain_interruption(how: str) -> Iterator[None]:
    """On Ctrl-C, say how to continue."""
    from elmore.signals import InterruptedRunError

    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError(f"interrupted{how}") from error
