"""Classification: class indices, class probabilities and accuracy.

B examples, K classes.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int
from rich.markup import escape
from torch import Tensor

from elmore.tasks.show import color_of
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


def accuracy(gold: Iterable[str], predicted: Iterable[ClassProbabilities]) -> dict[str, float]:
    """Return the share of examples whose most probable class is correct."""
    correct = [most_probable(p) == label for label, p in zip(gold, predicted, strict=True)]
    return {"accuracy": sum(correct) / max(len(correct), 1)}


def show_class(probabilities: ClassProbabilities) -> str:
    """Return the most probable class and its probability in rich's markup: positive 0.93."""
    label = most_probable(probabilities)
    color = color_of(label)
    return f"[bold {color}]{escape(label)}[/bold {color}] {probabilities[label]:.2f}"
