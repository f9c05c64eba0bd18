"""Learning curves: the training loss on the left axis, the quality measure on the right one."""

from collections.abc import Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmore.atomic import atomic_file
from elmore.errors import InputError, require


class Curve(NamedTuple):
    """A line plot and the label of its axis."""

    label: str
    points: list[tuple[float, float]]


def plot_pretraining(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot training loss and held-out perplexity over the number of tokens.

    Raises:
        InputError: If a record is incomplete.
    """
    trained = [record for record in records if "loss" in record]
    evaluated = [record for record in records if record.get("heldout")]
    loss = Curve("training loss (nats per word)", _points(trained, "tokens", "loss"))
    heldout = _points(evaluated, "tokens", "heldout", "average")
    perplexity = Curve("held-out perplexity", heldout)
    _plot(path, "tokens", loss, perplexity, highlight=len(heldout) - 1, number="{:.1f}")


def plot_task(records: Sequence[dict[str, Any]], path: Path, score: str) -> None:
    """Plot training loss and dev score over the epochs, and highlight the best score.

    Raises:
        InputError: If a record is incomplete.
    """
    loss = Curve("training loss", _points(records, "epoch", "loss"))
    scores = Curve(f"dev {score}", _points(records, "epoch", "dev", score))
    best = max(range(len(records)), key=lambda i: scores.points[i][1])
    _plot(path, "epoch", loss, scores, highlight=best, number="{:.4f}")


def _points(records: Sequence[Any], x: str, *y: str) -> list[tuple[float, float]]:
    """Return two numbers of each record; `y` are the keys of a nested one."""
    try:
        return [(float(record[x]), float(reduce(getitem, y, record))) for record in records]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"a line of metrics.jsonl has no {x} or no {' '.join(y)}") from error


def _plot(
    path: Path, xlabel: str, loss: Curve, quality: Curve, *, highlight: int, number: str
) -> None:
    """Write a PNG file; `highlight` is the index of the quality whose value is printed."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel=xlabel, ylabel=loss.label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2M rather than 2000000
    axes.plot(*np.reshape(loss.points, (-1, 2)).T, ".-", markersize=3, color="C0", label="loss")
    if quality.points:
        right = axes.twinx()
        right.set_ylabel(quality.label)
        right.plot(*np.transpose(quality.points), ".-", color="C1", label=quality.label)
        right.margins(y=0.1)  # room for the number above the highest point
        point = quality.points[highlight]
        above: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points"}
        right.annotate(number.format(point[1]), point, ha="center", color="C1", **above)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
