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

    def items(self, count: int, seconds: float, burst: int = 1) -> Iterator[int]:
        """Yield numbers, each of which takes some seconds, in bursts of several."""
        for number in range(count):
            if number % burst == 0:
                self.now += seconds * burst
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
    with pytest.raises(
        InputError, match=r"a limit of 2 min is too short: it would end after about 2.83"
    ):
        list(limit.require_time(clock.items(110, 1), 110, "it"))
    assert clock.now == 100 + 60 + 13


@pytest.mark.parametrize(("seconds", "enough"), [(1, True), (2, False)])
def test_items_in_bursts_are_not_underestimated(clock: Clock, seconds: int, enough: bool) -> None:
    """The first 20 of 100 items come together after 20 or 40 s."""
    items = TimeLimit(2).require_time(clock.items(100, seconds, burst=20), 100, "it")
    if enough:
        assert len(list(items)) == 100
    else:
        with pytest.raises(InputError, match=r"it would end after about 3.33 min"):
            list(items)
        assert clock.now == 100 + 80  # at the end of the second burst
