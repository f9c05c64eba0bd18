"""Coreference scores.

Oracles: worked examples from the papers, edge cases by hand, brute force and SciPy for the
assignment, and scorch, an independent implementation of the scorer.
"""

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scorch import scores as scorch

from elmore.tasks.coref.metric import coref_scores, linear_assignment
from elmore.tasks.spans import Span


def clusters(text: str) -> list[list[Span]]:
    """`abc de` -> two clusters with one mention per letter."""
    return [[Span(ord(letter), ord(letter) + 1) for letter in part] for part in text.split()]


def score(key: str, response: str) -> dict[str, float]:
    return coref_scores([clusters(key)], [clusters(response)])


def check(actual: dict[str, float], name: str, precision: float, recall: float) -> None:
    assert actual[f"{name}_precision"] == pytest.approx(precision)
    assert actual[f"{name}_recall"] == pytest.approx(recall)
    total = precision + recall
    expected = 2 * precision * recall / total if total else 0
    assert actual[f"{name}_f1"] == pytest.approx(expected)


def test_example_of_pradhan_et_al() -> None:
    actual = score("abc defg", "ab cd fghi")
    check(actual, "mentions", 6 / 8, 6 / 7)
    check(actual, "muc", 2 / 5, 2 / 5)
    check(actual, "b_cubed", 4 / 8, (4 / 3 + 1 / 3 + 1 / 4 + 4 / 4) / 7)
    check(actual, "ceaf_e", 1.3 / 3, 1.3 / 2)
    f1s = [actual[f"{name}_f1"] for name in ("muc", "b_cubed", "ceaf_e")]
    assert actual["average"] == pytest.approx(sum(f1s) / 3)
    # Training shows the first four scores.
    assert list(actual)[:4] == ["average", "muc_f1", "b_cubed_f1", "ceaf_e_f1"]


def test_example_of_vilain_et_al() -> None:
    # Their second case: AB CD misses one of the three links of ABCD and adds none.
    check(score("ABCD", "AB CD"), "muc", 1, 2 / 3)
    check(score("AB CD", "ABCD"), "muc", 2 / 3, 1)


def test_examples_of_bagga_and_baldwin() -> None:
    # Two ways to merge clusters of 5, 2 and 5 mentions: same MUC, different B-cubed.
    key = "12345 67 89ABC"
    small, large = score(key, "12345 6789ABC"), score(key, "1234589ABC 67")
    for actual in (small, large):
        check(actual, "muc", 9 / 10, 1)
    check(small, "b_cubed", (5 + 4 / 7 + 25 / 7) / 12, 1)
    check(large, "b_cubed", (2 * 25 / 10 + 2) / 12, 1)


def test_perfect_and_empty_responses() -> None:
    perfect = score("abc de", "ed cab")
    assert set(perfect.values()) == {1.0}
    for key, response in (("abc", ""), ("", "abc"), ("", ""), ("ab", "cd")):
        assert set(score(key, response).values()) == {0.0}


def test_singletons_have_no_links_but_count_as_clusters() -> None:
    actual = score("ab c", "ab")
    check(actual, "muc", 1, 1)
    check(actual, "b_cubed", 1, 2 / 3)
    check(actual, "ceaf_e", 1, 1 / 2)
    check(score("a", "a"), "muc", 0, 0)


def test_counts_are_summed_over_documents_before_division() -> None:
    actual = coref_scores([clusters("abc"), clusters("ab")], [clusters("abc"), []])
    check(actual, "muc", 1, 2 / 3)
    check(actual, "b_cubed", 1, 3 / 5)
    check(actual, "ceaf_e", 1, 1 / 2)


def similarities(rows: int, columns: int, seed: int) -> np.ndarray:
    """Random similarities with many zeros and ties, as between clusters."""
    rng = np.random.default_rng([rows, columns, seed])
    return np.round(rng.random((rows, columns)), 1) * (rng.random((rows, columns)) < 0.6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0), (1, 1), (2, 5), (5, 2), (5, 5)])
def test_assignment_equals_brute_force(rows: int, columns: int, seed: int) -> None:
    similarity = similarities(rows, columns, seed)
    pairs = linear_assignment(similarity)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    wide = similarity if rows <= columns else similarity.T
    best = max(
        sum(wide[row, column] for row, column in enumerate(chosen))
        for chosen in permutations(range(wide.shape[1]), wide.shape[0])
    )
    assert sum(similarity[pair] for pair in pairs) == pytest.approx(best)


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (50, 50)])
def test_assignment_equals_scipy(shape: tuple[int, int]) -> None:
    similarity = similarities(*shape, seed=0)
    expected = similarity[linear_sum_assignment(similarity, maximize=True)].sum()
    assert sum(similarity[pair] for pair in linear_assignment(similarity)) == pytest.approx(
        expected
    )


@pytest.mark.parametrize("seed", range(20))
def test_scores_equal_scorch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys, responses = ([random_clusters(rng) for _ in range(3)] for _ in range(2))
    actual = coref_scores(keys, responses)
    # scorch scores one document, so mentions are pooled and labeled with their document.
    key, response = (
        [{(i, *mention) for mention in c} for i, document in enumerate(side) for c in document]
        for side in (keys, responses)
    )
    for name in ("muc", "b_cubed", "ceaf_e"):
        recall, precision, _ = getattr(scorch, name)(key, response)
        check(actual, name, precision, recall)


def random_clusters(rng: np.random.Generator) -> list[list[Span]]:
    """Up to 8 random clusters of up to 30 mentions."""
    chosen = rng.permutation(30)[: rng.integers(5, 30)]
    cluster = rng.integers(0, 8, len(chosen))
    groups = [[Span(int(i), int(i) + 1) for i in chosen[cluster == c]] for c in range(8)]
    return [group for group in groups if group]
