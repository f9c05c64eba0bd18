"""Scores of labels. Oracles: counts by hand; torchmetrics."""

import random

import pytest
import torch
from torchmetrics.functional import classification

from elmore.tasks.scores import confusion_matrix, scores_by_label, span_confusion_matrix, span_f1
from elmore.tasks.spans import LabeledSpan as S

LABELS = ["a", "b", "c", "d"]


def test_f1_counts_exact_matches() -> None:
    gold = [[S("A", 0, 2), S("B", 3, 4)], [S("A", 0, 1)]]
    predicted = [[S("A", 0, 2), S("A", 3, 4)], []]  # one correct, one with the wrong label
    scores = span_f1(gold, predicted)
    assert scores == {"f1": pytest.approx(0.4), "precision": 0.5, "recall": pytest.approx(1 / 3)}
    assert span_f1(gold, gold)["f1"] == 1
    assert span_f1([[]], [[]])["f1"] == 0


def test_scores_of_random_labels_equal_torchmetrics() -> None:
    rng = random.Random(0)
    gold = rng.choices(LABELS[:3], k=60)  # d is predicted, but never correct
    predicted = rng.choices(LABELS, k=60)
    ids = [torch.tensor([LABELS.index(label) for label in part]) for part in (predicted, gold)]
    matrix = confusion_matrix(gold, predicted)
    assert [list(row.values()) for row in matrix.values()] == (
        classification.multiclass_confusion_matrix(*ids, num_classes=4).tolist()
    )
    table = scores_by_label([[(label,)] for label in gold], [[(label,)] for label in predicted])
    oracles = {
        "precision": classification.multiclass_precision,
        "recall": classification.multiclass_recall,
        "f1": classification.multiclass_f1_score,
    }
    for name, oracle in oracles.items():
        expected = oracle(*ids, num_classes=4, average=None).tolist()
        assert [row[name] for row in table.values()] == pytest.approx(expected)


def test_confusion_matrix_keeps_the_given_order_and_all_labels() -> None:
    matrix = confusion_matrix(["x", "b"], ["b", "b"], order=["c", "b"])
    assert matrix == {
        "c": {"c": 0, "b": 0, "x": 0},
        "b": {"c": 0, "b": 1, "x": 0},
        "x": {"c": 0, "b": 1, "x": 0},
    }
    assert list(matrix) == list(matrix["x"]) == ["c", "b", "x"]


def test_confusion_matrix_of_many_labels_has_no_empty_cells() -> None:
    labels = [f"{i:03}" for i in range(101)]
    matrix = confusion_matrix([*labels, "000"], [*labels, "001"])
    assert list(matrix) == labels
    assert matrix["000"] == {"000": 1, "001": 1}
    assert matrix["100"] == {"100": 1}


def test_confusion_of_spans_compares_equal_boundaries() -> None:
    gold = [[S("PER", 0, 2), S("LOC", 3, 4)], [S("ORG", 0, 1)], []]
    predicted = [[S("PER", 0, 2), S("ORG", 3, 4)], [S("ORG", 0, 2)], [S("LOC", 1, 2)]]
    matrix = span_confusion_matrix(gold, predicted)
    assert list(matrix) == ["LOC", "ORG", "PER", "O"]
    assert matrix == {
        "LOC": {"LOC": 0, "ORG": 1, "PER": 0, "O": 0},
        "ORG": {"LOC": 0, "ORG": 0, "PER": 0, "O": 1},
        "PER": {"LOC": 0, "ORG": 0, "PER": 1, "O": 0},
        "O": {"LOC": 1, "ORG": 1, "PER": 0, "O": 0},
    }
