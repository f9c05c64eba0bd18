"""Verdicts from pairs of runs. Oracle: the t-test of SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from elmore.analysis.paired import differences, interval, judge_gain


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_interval_equals_scipy(count: int) -> None:
    values = np.random.default_rng(count).normal(1, 2, count).tolist()
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    actual = interval(values)
    assert (actual.low, actual.high) == pytest.approx(tuple(expected), rel=1e-3)
    assert actual.mean == pytest.approx(np.mean(values))


def test_a_single_pair_decides_nothing() -> None:
    assert interval([3.0])[:3] == (3.0, -math.inf, math.inf)
    assert judge_gain("ELMo helps", [3.0]) == "ELMo helps: undecided (+3.00; 1 pair of runs)."


def test_verdict_agrees_with_the_t_test() -> None:
    rng = np.random.default_rng(0)
    verdicts = []
    for shift in np.linspace(-3, 3, 61):
        gains = rng.normal(shift, 1, 4).tolist()
        test = stats.ttest_1samp(gains, 0)
        significant = test.pvalue < 0.05
        expected = (
            "undecided" if not significant else "confirmed" if test.statistic > 0 else "refuted"
        )
        assert f": {expected} (" in judge_gain("x", gains)
        verdicts.append(expected)
    assert set(verdicts) == {"undecided", "confirmed", "refuted"}


def test_differences_are_those_of_common_seeds() -> None:
    assert differences({0: 1.0, 1: 2.0}, {1: 5.0, 2: 9.0}) == [3.0]
