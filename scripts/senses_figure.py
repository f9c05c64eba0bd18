"""Draw the figure of the README: the occurrences of "play" in each layer of the English model.

Run as: python scripts/senses_figure.py [-o docs/figures/play.svg]
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import matplotlib.lines
import numpy as np
from matplotlib.figure import Figure

import elmore
from elmore.analysis.senses import WordSenses, embed_senses, nearest_accuracy, read_senses

ROOT = Path(__file__).parents[1]
WORD = "play"
SENSES = {  # color and marker, and an example from examples/senses.tsv
    "stage work": ("#0072B2", "o", "She translated the play from Norwegian ..."),
    "sports move": ("#D55E00", "s", "That double play ended the inning ..."),
    "to play": ("#009E73", "^", "She learned to play the cello at six ..."),
}
TITLES = ["Layer 0: the word alone", "Layer 1: in its sentence", "Layer 2: in its sentence"]


def main() -> None:
    """Embed the occurrences of the word, and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/figures/play.svg")
    output = parser.parse_args().output
    elmo = elmore.load(device="cpu")
    examples = read_senses(ROOT / "examples" / "senses.tsv", elmo.tokenizer, elmo.language)
    [word] = embed_senses(elmo, [example for example in examples if example.word == WORD])
    mpl.rcParams["svg.hashsalt"] = WORD  # the same file on every run
    draw(word).savefig(output, metadata={"Date": None})


def draw(word: WordSenses) -> Figure:
    """Return the figure: one panel per layer, and a legend with an example of each sense."""
    figure = Figure(figsize=(10, 4.2), facecolor="white")
    panels = figure.subplots(1, len(TITLES))
    figure.subplots_adjust(left=0.01, right=0.99, top=0.92, bottom=0.28, wspace=0.04)
    senses = np.array(word.senses)
    for layer, (axes, title) in enumerate(zip(panels, TITLES, strict=True)):
        points = word.points(layer)
        for sense, (color, marker, _) in SENSES.items():
            axes.scatter(
                *points[senses == sense].T,
                s=34,
                color=color,
                marker=marker,
                linewidths=0.5,
                edgecolors="white",
            )
        if not points.any():
            axes.scatter([0], [0], s=60, color="0.3")
            text = f"all {len(points)} occurrences\nhave the same vector"
            axes.annotate(
                text, (0, 0), xytext=(0, -14), textcoords="offset points", ha="center", va="top"
            )
        accuracy = nearest_accuracy(word.vectors[layer], word.senses)
        axes.set_title(title, fontsize=12, fontweight="bold")
        axes.set_xlabel(f"nearest neighbor has the same sense: {accuracy:.0%}", fontsize=10)
        axes.set(xticks=[], yticks=[])
        axes.margins(0.08)
        axes.set_aspect("equal", adjustable="datalim")
        for spine in axes.spines.values():
            spine.set_color("0.8")
    for row, (sense, (color, marker, example)) in enumerate(SENSES.items()):
        y = 0.165 - 0.06 * row
        figure.text(0.3, y, sense, color=color, fontsize=11, fontweight="bold", va="center")
        figure.text(0.42, y, f"\u201c{example}\u201d", fontsize=11, va="center")
        legend = mpl.lines.Line2D(
            [0.285], [y], color=color, marker=marker, transform=figure.transFigure
        )
        figure.add_artist(legend)
    return figure


if __name__ == "__main__":
    main()
