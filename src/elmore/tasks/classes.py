"""Classification: class indices, probabilities of classes and labels, scores.

B examples, K classes.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from rich.markup import escape
from torch import Tensor

from elmore.tasks.scores import confusion_matrix, scores_by_label
from elmore.tasks.show import color_of
from elmore.tasks.task import Batch, Example, Task
from elmore.transfer import to_device

ClassProbabilities = dict[str, float]
"""The probability of each class, by name."""


class LabelProbabilities(ClassProbabilities):
    """The probabilities of labels of which any number may apply to an example.

    Those with a probability of at least 0.5 are predicted.
    """


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


def predicted_labels(probabilities: ClassProbabilities) -> list[str]:
    """Return the most probable class, or all labels that apply."""
    if isinstance(probabilities, LabelProbabilities):
        return [label for label, p in probabilities.items() if p >= 0.5]
    return [most_probable(probabilities)]


class ClassificationTask(Task[Example, Batch, ClassProbabilities]):
    """A task that assigns one of several classes, or several labels, to each example."""

    score_name = "accuracy"

    @abstractmethod
    def gold_labels(self, example: Example) -> Sequence[str]:
        """Return the class, or all labels."""

    def score(
        self, examples: Sequence[Example], predictions: Sequence[ClassProbabilities]
    ) -> dict[str, float]:
        """Return the share of examples whose predicted class, or set of labels, is correct."""
        pairs = zip(examples, map(predicted_labels, predictions), strict=True)
        correct = sum(set(self.gold_labels(example)) == set(labels) for example, labels in pairs)
        return {"accuracy": correct / max(len(examples), 1)}

    def scores_by_label(
        self, examples: Sequence[Example], predictions: Sequence[ClassProbabilities]
    ) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support of each class."""
        gold = ([(label,) for label in self.gold_labels(example)] for example in examples)
        return scores_by_label(gold, ([(x,) for x in predicted_labels(p)] for p in predictions))

    def confusion_matrix(
        self, examples: Sequence[Example], predictions: Sequence[ClassProbabilities]
    ) -> dict[str, dict[str, int]]:
        """Return how many examples of each gold class were predicted as each class.

        The classes are in the order of the probabilities, followed by those that only examples
        have. There is no such matrix if an example may have several labels.
        """
        if any(isinstance(p, LabelProbabilities) for p in predictions):
            return {}
        return confusion_matrix(
            chain.from_iterable(map(self.gold_labels, examples)),
            map(most_probable, predictions),
            order=list(chain(*predictions[:1])),
        )


def class_as_json(probabilities: ClassProbabilities) -> dict[str, Any]:
    """Return the predicted class and its probability, or labels, and all probabilities."""
    labels = predicted_labels(probabilities)
    if isinstance(probabilities, LabelProbabilities):
        return {"labels": labels, "probabilities": probabilities}
    return {
        "label": labels[0],
        "probability": probabilities[labels[0]],
        "probabilities": probabilities,
    }


def show_class(probabilities: ClassProbabilities) -> str:
    """Return predicted classes and their probabilities in rich's markup: positive 0.93."""
    return ", ".join(
        f"[bold {color_of(x)}]{escape(x)}[/bold {color_of(x)}] {probabilities[x]:.2f}"
        for x in predicted_labels(probabilities)
    )
