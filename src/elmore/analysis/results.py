"""What an evaluation returns, and the error if it lacks something it needs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from elmore.errors import InputError


class Result(NamedTuple):
    """Scores of an evaluation."""

    scores: Mapping[str, Mapping[str, float | str]]
    """By row, such as a layer or a baseline, and column, such as a test set."""

    details: dict[str, Any]
    """What a reader needs to judge the scores, such as the number of examples."""


class NotAvailableError(InputError):
    """An evaluation cannot run: a data file is missing, or the model has no softmax."""


def layer_rows(num_layers: int) -> list[str]:
    """Return the names of the rows of the layers."""
    return [f"layer {layer}" for layer in range(num_layers)]
