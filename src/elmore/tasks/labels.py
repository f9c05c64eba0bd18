"""Checks of gold labels, so that no score is printed for data that the model cannot know."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from elmore.errors import InputError
from elmore.tasks.task import Labels, Task

_MAX_LISTED = 20
"""Maximum number of labels in a message."""
_MIN_SUSPICIOUS = 5
"""Fewer classes than this may all be rare in a tiny dataset."""


def check_classes(task: Task[Any, Any, Any], labels: Labels, examples: Sequence[Any]) -> list[str]:
    """Return notes on the classes of the training examples of a classifier.

    Raises:
        InputError: If no example has a label, or all have the same one.
    """
    classes, num_examples = labels.get("classes"), len(examples)
    if classes is None:
        return []
    if not classes:
        raise InputError("the training examples have no labels")
    if len(classes) == 1 and all(map(task.gold_labels, examples)):
        raise InputError(
            f"all training examples have the label {classes[0]!r}; expected at least two classes"
        )
    if len(classes) < _MIN_SUSPICIOUS or 2 * len(classes) <= num_examples:
        return []
    return [
        f"the {num_examples} training examples have {len(classes)} different labels, such as "
        f"{classes[0]!r:.40}. Are labels and texts in the right columns?"
    ]


def check_labels(
    task: Task[Any, Any, Any], labels: Labels, examples: Sequence[Any], source: str
) -> list[str]:
    """Return notes on gold labels that make scores misleading.

    Args:
        task: The task.
        labels: Labels of the training examples.
        examples: Labeled examples to be scored.
        source: Where they come from, for messages.

    Raises:
        InputError: If the examples have no gold labels, or only labels that the model cannot
            predict.
    """
    gold = [task.gold_labels(example) for example in examples]
    counts = Counter(chain.from_iterable(names for names in gold if names is not None))
    if not counts:
        if None in gold:
            return []
        raise InputError(
            f"{source} has no gold labels, only unlabeled examples, so there is nothing to score"
        )
    known = {*labels.get("classes", ()), *(tag[2:] for tag in labels.get("tags", ()) if tag != "O")}
    unknown = [f"{name} ({n})" for name, n in counts.most_common() if known and name not in known]
    if len(unknown) == len(counts):
        raise InputError(
            f"the model knows none of the labels in {source}: {_listing(unknown)}. It was trained "
            f"with {_listing(sorted(known))}."
        )
    notes = []
    if unknown:
        notes.append(
            f"{source} has labels that are not in the training data and count as errors: "
            f"{_listing(unknown)}"
        )
    if "classes" in labels and len(counts) == 1 and all(gold):
        notes.append(f"all examples in {source} have the label {next(iter(counts))!r}")
    return notes


def _listing(names: Sequence[str]) -> str:
    return ", ".join([*names[:_MAX_LISTED], *["..."] * (len(names) > _MAX_LISTED)])
