"""Figures of the report, drawn by matplotlib as SVG."""

import io
import re
import statistics
from collections.abc import Sequence
from typing import Any

from elmore.analysis.results import Plot
from elmore.errors import require

BASELINE, ELMO, PAPER = "#666666", "#0072b2", "#d55e00"
"""Colors that people with color blindness can tell apart."""


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure; sizes are in inches."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def to_plot(figure: Any, name: str, caption: str) -> Plot:
    """Return a figure as SVG, without a date, so that the same scores give the same file."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    # The salt makes the other ids unique: all figures are in one HTML page. Text stays text.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = re.sub('<g id="[^"]*"', "<g", buffer.getvalue())  # such as figure_1: not unique
    return Plot(name, caption, svg[svg.index("<svg") :])


def mean_and_spread(scores: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single score."""
    return statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0
