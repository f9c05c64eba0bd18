"""The time limit of a training run, which includes the biLM pass."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from elmore.errors import InputError

T = TypeVar("T")

_MIN_SHARE = 0.1
"""Part of the limit after which the speed is taken as representative."""


class TimeLimit:
    """A limit on the time since this object was created."""

    def __init__(self, minutes: float | None = None) -> None:
        self.seconds = math.inf if minutes is None else 60 * minutes
        self._start = time.monotonic()

    @property
    def remaining(self) -> float:
        """Seconds until the limit; negative after it."""
        return self.seconds - self.elapsed

    @property
    def elapsed(self) -> float:
        """Seconds since this object was created."""
        return time.monotonic() - self._start

    def require_time(self, items: Iterable[T], total: int, what: str) -> Iterator[T]:
        """Yield the items of a part of the run that has to be completed within the limit.

        Args:
            items: The steps of this part.
            total: Their number.
            what: Name of this part in messages.

        Raises:
            InputError: As soon as the time that the items have taken so far shows that the limit
                is too short. The message says how much time is needed.
        """
        start = last = time.monotonic()
        for done, item in enumerate(items):  # `done` items have been completed before this one
            now = time.monotonic()
            seconds_per_item = (last - start) / done if done else math.inf
            # Items may come in bursts, batch by batch. Within a burst, too few of its items are
            # counted as done, so the speed is measured after a wait.
            if now - last > seconds_per_item / 2 and now - start > _MIN_SHARE * self.seconds:
                remaining = seconds_per_item * (total - done) - (now - last)
                if remaining > self.remaining:
                    needed = self.elapsed + remaining
                    raise InputError(
                        f"a limit of {self.seconds / 60:.3g} min is too short: {what} would end "
                        f"after about {needed / 60:.3g} min. Resume the run with a longer limit."
                    )
            last = now
            yield item
