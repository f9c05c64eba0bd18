"""Classes of examples as numbers, and answers as probabilities of classes.

B examples, K classes.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.tasks.show import color_of, escape
from elmore.transfer import to_device

Answer = dict[str, float]
"""Classes with their probabilities."""


def numbers_of(
    labels: Iterable[str], classes: Sequence[str], device: torch.device
) -> Int[Tensor, " B"]:
    """Number the classes of examples; one that was never seen in training can't be found either."""
    number = {name: i for i, name in enumerate(classes)}
    return to_device(torch.tensor([number.get(label, 0) for label in labels]), device)


def answers(scores: Float[Tensor, "B K"], classes: Sequence[str]) -> list[Answer]:
    """Turn scores of classes into answers."""
    rows = scores.float().softmax(dim=-1).tolist()
    return [dict(zip(classes, row, strict=True)) for row in rows]


def best(answer: Answer) -> str:
    """Return the most probable class."""
    return max(answer, key=answer.__getitem__)


def accuracy(gold: Iterable[str], found: Iterable[Answer]) -> dict[str, float]:
    """Return the share of examples whose most probable class is the right one."""
    right = [best(answer) == label for label, answer in zip(gold, found, strict=True)]
    return {"accuracy": sum(right) / max(len(right), 1)}


def show_class(answer: Answer) -> str:
    """Return the most probable class and how probable it is, in its color: positive 0.93."""
    label = best(answer)
    color = color_of(label)
    return f"[bold {color}]{escape(label)}[/bold {color}] {answer[label]:.2f}"
