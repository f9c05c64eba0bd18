"""Progress of long work: a bar on a terminal, a plain line now and then in a pipe."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 10.0


def with_progress(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, and show on the standard error how many there have been."""
    return (_bar if sys.stderr.isatty() else _lines)(items, what, total)


def _bar(items: Iterable[T], what: str, total: int | None) -> Iterator[T]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(what),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:
        yield from bars.track(items, total=total)


def _lines(items: Iterable[T], what: str, total: int | None) -> Iterator[T]:
    last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            of_all = f" of {total:,}" if total else ""
            print(f"{done:,}{of_all} {what}", file=sys.stderr, flush=True)
