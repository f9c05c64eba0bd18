"""Scores of labels: F1 of spans, precision and recall of each label, confusion matrices."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

OUTSIDE = "O"
"""Row or column of spans that only the predictions or only the gold data have."""

_MAX_DENSE = 100
"""Number of labels above which a confusion matrix leaves out cells with a count of 0."""


def span_f1(
    gold: Iterable[Iterable[Hashable]], predicted: Iterable[Iterable[Hashable]]
) -> dict[str, float]:
    """Return precision, recall and F1 of exactly matching spans over all sentences."""
    correct = num_predicted = num_gold = 0
    for predicted_spans, gold_spans in zip(map(set, predicted), map(set, gold), strict=True):
        correct += len(predicted_spans & gold_spans)
        num_predicted += len(predicted_spans)
        num_gold += len(gold_spans)
    return _f1(correct, num_predicted, num_gold)


def scores_by_label(
    gold: Iterable[Iterable[tuple[Any, ...]]], predicted: Iterable[Iterable[tuple[Any, ...]]]
) -> dict[str, dict[str, float]]:
    """Return `span_f1` of each label, and its support: the number of gold spans.

    The label is the first element of a span.
    """
    correct, num_predicted, num_gold = Counter[str](), Counter[str](), Counter[str]()
    for predicted_spans, gold_spans in zip(map(set, predicted), map(set, gold), strict=True):
        correct.update(span[0] for span in predicted_spans & gold_spans)
        num_predicted.update(span[0] for span in predicted_spans)
        num_gold.update(span[0] for span in gold_spans)
    table = {}
    for label in sorted(num_predicted | num_gold):
        scores = _f1(correct[label], num_predicted[label], num_gold[label])
        table[label] = {
            "precision": scores["precision"],
            "recall": scores["recall"],
            "f1": scores["f1"],
            "support": num_gold[label],
        }
    return table


def _f1(correct: int, num_predicted: int, num_gold: int) -> dict[str, float]:
    return {
        "f1": 2 * correct / max(num_predicted + num_gold, 1),
        "precision": correct / max(num_predicted, 1),
        "recall": correct / max(num_gold, 1),
    }


def confusion_matrix(
    gold: Iterable[str], predicted: Iterable[str], order: Sequence[str] = ()
) -> dict[str, dict[str, int]]:
    """Return how often each gold label was predicted as each label: `matrix[gold][predicted]`.

    With more than 100 labels, only the cells with a count are included.

    Args:
        gold: Gold labels.
        predicted: Predicted labels.
        order: Labels to include in any case, and first; the others follow in alphabetical order.
    """
    counts = Counter(zip(gold, predicted, strict=True))
    seen = {label for pair in counts for label in pair}
    labels = list(dict.fromkeys([*order, *sorted(seen)]))
    matrix: dict[str, dict[str, int]] = {label: {} for label in labels}
    if len(labels) <= _MAX_DENSE:
        matrix = {label: dict.fromkeys(labels, 0) for label in labels}
    for (label, other), count in counts.items():
        matrix[label][other] = count
    return matrix


def span_confusion_matrix(
    gold: Iterable[Iterable[tuple[Any, ...]]], predicted: Iterable[Iterable[tuple[Any, ...]]]
) -> dict[str, dict[str, int]]:
    """Return the confusion matrix of the labels of spans with equal boundaries.

    The label is the first element of a span. The row `O` counts predicted spans without a gold span
    of the same boundaries, the column `O` gold spans without a predicted one.
    """
    pairs: list[tuple[str, str]] = []
    for spans in zip(gold, predicted, strict=True):
        labels, others = ({span[1:]: span[0] for span in part} for part in spans)
        pairs += ((labels.get(at, OUTSIDE), others.get(at, OUTSIDE)) for at in labels | others)
    order = sorted({label for pair in pairs for label in pair} - {OUTSIDE})
    return confusion_matrix((label for label, _ in pairs), (other for _, other in pairs), order)
