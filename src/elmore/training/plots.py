"""A run as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.atomic import atomic_file
from elmore.errors import require


def plot_losses(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the training loss and the held-out perplexity over the tokens that were read."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    steps = [record for record in records if "loss" in record]
    heldout = [record for record in records if record.get("heldout")]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="tokens", ylabel="training loss (nats a word)")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.plot([r["tokens"] for r in steps], [r["loss"] for r in steps], color="C0", label="loss")
    if heldout:
        right = axes.twinx()
        right.set_ylabel("held-out perplexity")
        tokens, values = zip(
            *((r["tokens"], r["heldout"]["average"]) for r in heldout), strict=True
        )
        right.plot(tokens, values, "o-", color="C1", label="held-out perplexity")
        right.annotate(
            f"{values[-1]:.1f}",
            (tokens[-1], values[-1]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="right",
            color="C1",
        )
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
