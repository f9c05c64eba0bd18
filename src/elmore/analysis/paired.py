"""Verdicts from pairs of runs with the same seed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for a two-sided 95 % interval with 1 to 9 degrees of freedom. With more of them, the
last one gives an interval that is slightly too wide."""


class Interval(NamedTuple):
    """A mean with its 95 % confidence interval; that of a single value is unbounded."""

    mean: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        if self.pairs == 1:
            return "1 pair of runs"
        return f"95 % interval {self.low:.2f} to {self.high:.2f}, {self.pairs} pairs of runs"


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values, such as differences, and its confidence interval."""
    mean, freedom = statistics.mean(values), len(values) - 1
    if not freedom:
        return Interval(mean, -math.inf, math.inf, 1)
    t = _T[min(freedom, len(_T)) - 1]
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values))


def differences(before: Mapping[int, float], after: Mapping[int, float]) -> list[float]:
    """Return `after - before` for each seed that both have."""
    return [after[seed] - score for seed, score in before.items() if seed in after]


def judge_gain(claim: str, gains: Sequence[float]) -> str:
    """Return a claim that some change is a gain, with its verdict.

    It is confirmed if the confidence interval of the mean gain is above zero, refuted if it is
    below, and undecided otherwise.
    """
    gain = interval(gains)
    verdict = "confirmed" if gain.low > 0 else "refuted" if gain.high < 0 else "undecided"
    return f"{claim}: {verdict} ({gain.mean:+.2f}; {gain})."
