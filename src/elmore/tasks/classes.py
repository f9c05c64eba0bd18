"""Classification: class indices, class probabilities and scores.

B examples, K classes.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar

import torch
from jaxtyping import Float, Int
from rich.markup import escape
from torch import Tensor

from elmore.tasks.scores import confusion_matrix, scores_by_label
from elmore.tasks.show import color_of
from elmore.tasks.task import Batch, Task
from elmore.transfer import to_device

ClassProbabilities = dict[str, float]
"""The probability of each class, by name."""


def class_ids(
    labels: Iterable[str], classes: Sequence[str], device: torch.device
) -> Int[Tensor, " B"]:
    """Return the indices of labels in `classes`; 0 for a label that no training example has."""
    index = {name: i for i, name in enumerate(classes)}
    return to_device(torch.tensor([index.get(label, 0) for label in labels]), device)


def class_probabilities(
    scores: Float[Tensor, "B K"], classes: Sequence[str]
) -> list[ClassProbabilities]:
    """Return the softmax of the scores of each example."""
    rows = scores.float().softmax(dim=-1).tolist()
    return [dict(zip(classes, row, strict=True)) for row in rows]


def most_probable(probabilities: ClassProbabilities) -> str:
    """Return the most probable class."""
    return max(probabilities, key=probabilities.__getitem__)


class LabeledExample(Protocol):
    """An example of a classification task."""

    @property
    def label(self) -> str:
        """The gold class."""


Example = TypeVar("Example", bound=LabeledExample)


class ClassificationTask(Task[Example, Batch, ClassProbabilities]):
    """A task that assigns one of several classes to each example."""

    score_name = "accuracy"

    def gold_labels(self, example: Example) -> list[str]:
        """Return the class."""
        return [example.label]

    def score(
        self, examples: Sequence[Example], predictions: Sequence[ClassProbabilities]
    ) -> dict[str, float]:
        """Return the share of examples whose most probable class is correct."""
        pairs = zip(examples, predictions, strict=True)
        correct = sum(most_probable(p) == example.label for example, p in pairs)
        return {"accuracy": correct / max(len(examples), 1)}

    def scores_by_label(
        self, examples: Sequence[Example], predictions: Sequence[ClassProbabilities]
    ) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support of each class."""
        gold = [[(example.label,)] for example in examples]
        return scores_by_label(gold, [[(most_probable(p),)] for p in predictions])

    def confusion_matrix(
        self, examples: Sequence[Example], predictions: Sequence[ClassProbabilities]
    ) -> dict[str, dict[str, int]]:
        """Return how many examples of each gold class were predicted as each class.

        The classes are in the order of the probabilities, followed by those that only examples
        have.
        """
        return confusion_matrix(
            (example.label for example in examples),
            map(most_probable, predictions),
            order=list(chain(*predictions[:1])),
        )


def class_as_json(probabilities: ClassProbabilities) -> dict[str, Any]:
    """Return the most probable class, its probability, and the probabilities of all classes."""
    label = most_probable(probabilities)
    return {
        "label": label,
        "probability": probabilities[label],
        "probabilities": probabilities,
    }


def show_class(probabilities: ClassProbabilities) -> str:
    """Return the most probable class and its probability in rich's markup: positive 0.93."""
    label = most_probable(probabilities)
    color = color_of(label)
    return f"[bold {color}]{escape(label)}[/bold {color}] {probabilities[label]:.2f}"
