"""The training of a task as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.atomic import atomic_file
from elmore.errors import require


def plot_scores(records: Sequence[dict[str, Any]], path: Path, score: str) -> None:
    """Draw the training loss and the score on dev examples over the epochs."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = [record["epoch"] for record in records]
    scores = [record["dev"][score] for record in records]
    best = max(range(len(scores)), key=scores.__getitem__)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="epoch", ylabel="training loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.plot(epochs, [record["loss"] for record in records], ".-", color="C0", label="loss")
    right = axes.twinx()
    right.set_ylabel(f"dev {score}")
    right.plot(epochs, scores, ".-", color="C1", label=f"dev {score}")
    right.margins(y=0.1)  # room above the best score for its number
    right.annotate(
        f"{scores[best]:.4f}",
        (epochs[best], scores[best]),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        color="C1",
    )
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
