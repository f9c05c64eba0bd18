"""The time limit. Oracle: a clock that the test controls."""

import math
import time
from collections.abc import Iterator

import pytest

from elmore.errors import InputError
from elmore.tasks.time_limit import TimeLimit


class Clock:
    """Replaces `time.monotonic`."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def items(self, count: int, seconds: float) -> Iterator[int]:
        """Yield numbers, each of which takes some seconds."""
        for number in range(count):
            self.now += seconds
            yield number


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_without_a_limit_there_is_always_time(clock: Clock) -> None:
    limit = TimeLimit()
    assert limit.remaining == math.inf
    assert list(limit.require_time(clock.items(5, 1e6), 5, "it")) == [0, 1, 2, 3, 4]


def test_remaining_time_includes_everything_since_the_start(clock: Clock) -> None:
    limit = TimeLimit(2)
    clock.now += 50
    assert limit.remaining == 70
    assert list(limit.require_time(clock.items(7, 10), 7, "it")) == list(range(7))


def test_too_short_a_limit_is_noticed_early(clock: Clock) -> None:
    """110 items of 1 s after 60 s need 170 s. A tenth of the limit, 12 s, shows it."""
    limit = TimeLimit(2)
    clock.now += 60
    done = []
    with pytest.raises(InputError, match=r"2 minutes are too short: it would end after about 2.83"):
        done.extend(limit.require_time(clock.items(110, 1), 110, "it"))
    assert clock.now == 100 + 60 + 13
