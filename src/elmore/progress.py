"""Progress on standard error: a bar on a terminal, otherwise a line every 10 seconds."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
Progress = Callable[[Iterable[Any], str], Iterable[Any]]
"""Shows progress: takes an iterable and a description, returns an iterable, like `tqdm.tqdm`."""

_SECONDS_BETWEEN_LINES = 10.0


def track(items: Iterable[T], what: str, progress: Progress | None) -> Iterable[T]:
    """Return the items, whose progress is shown unless `progress` is None."""
    return items if progress is None else progress(items, what)


def with_progress(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield the items and show how many were yielded, with `what` as the unit."""
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
        task = bars.add_task(what, total=total)
        yield from bars.track(items, total=total, task_id=task)
        bars.update(task, total=bars.tasks[task].completed)  # it may not have been known before


def _lines(items: Iterable[T], what: str, total: int | None) -> Iterator[T]:
    last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            of_all = f" of {total:,}" if total else ""
            print(f"{done:,}{of_all} {what}", file=sys.stderr, flush=True)


def show_line(line: str) -> None:
    """Print a line to standard output at once, also in a pipe."""
    print(line, flush=True)
