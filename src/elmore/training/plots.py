"""Learning curves: the training loss on the left axis, the quality measure on the right one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmore.atomic import atomic_file
from elmore.errors import require


class Curve(NamedTuple):
    """Points of a line plot."""

    x: Sequence[float]
    y: Sequence[float]


def plot_pretraining(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot training loss and held-out perplexity over the number of tokens."""
    losses = [record for record in records if "loss" in record]
    heldout = [record for record in records if record.get("heldout")]
    perplexity = Curve(
        [record["tokens"] for record in heldout],
        [record["heldout"]["average"] for record in heldout],
    )
    _plot(
        path,
        "tokens",
        Curve([record["tokens"] for record in losses], [record["loss"] for record in losses]),
        perplexity,
        loss_label="training loss (nats per word)",
        quality_label="held-out perplexity",
        highlight=len(heldout) - 1,
        number="{:.1f}",
    )


def plot_task(records: Sequence[dict[str, Any]], path: Path, score: str) -> None:
    """Plot training loss and dev score over the epochs, and highlight the best score."""
    epochs = [record["epoch"] for record in records]
    scores = [record["dev"][score] for record in records]
    _plot(
        path,
        "epoch",
        Curve(epochs, [record["loss"] for record in records]),
        Curve(epochs, scores),
        loss_label="training loss",
        quality_label=f"dev {score}",
        highlight=max(range(len(scores)), key=scores.__getitem__),
        number="{:.4f}",
    )


def _plot(
    path: Path,
    xlabel: str,
    loss: Curve,
    quality: Curve,
    *,
    loss_label: str,
    quality_label: str,
    highlight: int,
    number: str,
) -> None:
    """Write a PNG file; `highlight` is the index of the quality whose value is printed."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel=xlabel, ylabel=loss_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2M rather than 2000000
    axes.plot(*loss, ".-", markersize=3, color="C0", label="loss")
    if quality.x:
        right = axes.twinx()
        right.set_ylabel(quality_label)
        right.plot(*quality, ".-", color="C1", label=quality_label)
        right.margins(y=0.1)  # room for the number above the highest point
        right.annotate(
            number.format(quality.y[highlight]),
            (quality.x[highlight], quality.y[highlight]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            color="C1",
        )
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
