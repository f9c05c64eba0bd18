"""What an evaluation returns, and the error if it lacks something it needs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from elmore.errors import InputError

Cell = float | str | list[float]
"""A score, a text, or the scores of several seeds, if any have finished."""


class Result(NamedTuple):
    """Scores of an evaluation."""

    scores: Mapping[str, Mapping[str, Cell]]
    """By row, such as a layer or a baseline, and column, such as a test set."""

    details: dict[str, Any]
    """What a reader needs to judge the scores, such as the number of examples."""

    findings: tuple[str, ...] = ()
    """Sentences on what the scores show, such as claims with a verdict."""

    notes: tuple[str, ...] = ()
    """How data and protocol differ from those of the paper."""


def finding(claim: str, holds: bool, evidence: str) -> str:
    """Return a claim with its verdict."""
    return f"{claim}: {'confirmed' if holds else 'not confirmed'} ({evidence})."


class Plot(NamedTuple):
    """A figure of the report."""

    name: str
    """Name of its file, without a suffix."""

    caption: str
    svg: str


class NotAvailableError(InputError):
    """An evaluation cannot run: a data file or package is missing, for example."""


def layer_rows(num_layers: int) -> list[str]:
    """Return the names of the rows of the layers."""
    return [f"layer {layer}" for layer in range(num_layers)]
