"""Table 1 of the paper from runs of `elmore train`: baseline, with ELMo, relative error reduction.

Run as: python experiments/table1.py RUNS [--plot curves.png]

RUNS contains folders named ROW-baseline-SEED and ROW-elmo-SEED, such as conll2003-elmo-0. The table
shows test scores. Runs without a test set have separate rows, marked as dev scores.
"""

import argparse
import json
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from elmore.tasks import get_task

PAPER = {
    "squad": ("SQuAD test", 81.1, 85.8),
    "snli": ("all of SNLI", 88.0, 88.7),
    "srl": ("OntoNotes", 81.4, 84.6),
    "coref": ("OntoNotes", 67.2, 70.4),
    "conll2003": ("the same", 90.15, 92.22),
    "sst5": ("the same", 51.4, 54.7),
}
"""Dataset and test scores of Peters et al. (2018), without and with ELMo, by row."""

_PANELS_PER_ROW = 4


class Row(NamedTuple):
    """A dataset and the scores of its runs in percent."""

    name: str
    baseline: list[float]
    elmo: list[float]
    cut_short: int = 0
    """Number of runs that hit the time limit."""

    @property
    def error_reduction(self) -> float:
        """Relative error reduction by ELMo, in percent."""
        before, after = statistics.mean(self.baseline), statistics.mean(self.elmo)
        return 100 * (after - before) / (100 - before)


def read_rows(folder: Path) -> list[Row]:
    """Read the scores of all complete runs. Rows without a baseline or without ELMo are skipped."""
    scores_by_row: dict[str, dict[str, list[float]]] = {}
    cut_short: Counter[str] = Counter()
    for path in sorted(folder.glob("*/metrics.json")):
        name, kind, _ = path.parent.name.rsplit("-", 2)
        summary = json.loads(path.read_text(encoding="utf-8"))
        split = "test" if "test" in summary["scores"] else "dev"
        name += "" if split == "test" else " (dev)"
        score = 100 * summary["scores"][split][get_task(summary["task"]).score_name]
        scores_by_row.setdefault(name, {}).setdefault(kind, []).append(score)
        cut_short[name] += summary["cut_short"]
    return [
        Row(name, kinds["baseline"], kinds["elmo"], cut_short[name])
        for name, kinds in scores_by_row.items()
        if kinds.keys() >= {"baseline", "elmo"}
    ]


def show(scores: list[float]) -> str:
    """Return the mean and, for several runs, the standard deviation."""
    mean = f"{statistics.mean(scores):.2f}"
    return f"{mean} +- {statistics.stdev(scores):.2f}" if len(scores) > 1 else mean


def table(rows: list[Row]) -> str:
    """Return a Markdown table with the scores next to those of the paper."""
    lines = [
        "| dataset | runs | baseline | + ELMo | error reduction "
        "| paper: dataset | baseline | + ELMo | error reduction |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        paper = "| | | | |"
        if row.name in PAPER:
            name, before, after = PAPER[row.name]
            published = Row(name, [before], [after])
            paper = f"| {name} | {before} | {after} | {published.error_reduction:.1f} % |"
        runs = f"{len(row.baseline)}, {len(row.elmo)}"
        runs += f" ({row.cut_short} cut short)" if row.cut_short else ""
        ours = f"| {row.name} | {runs} | {show(row.baseline)} | {show(row.elmo)} "
        lines.append(f"{ours}| {row.error_reduction:.1f} % {paper}")
    return "\n".join(lines)


def plot(folder: Path, path: Path) -> None:
    """Plot the dev scores of all complete runs by epoch, with one panel per row of the table."""
    from matplotlib.figure import Figure

    runs = [run.parent for run in sorted(folder.glob("*/metrics.json"))]
    names = list(dict.fromkeys(run.name.rsplit("-", 2)[0] for run in runs))
    if not names:
        raise SystemExit(f"table1: no complete run in {folder}")
    columns = min(_PANELS_PER_ROW, len(names))
    height = math.ceil(len(names) / columns)
    figure = Figure(figsize=(10, 1.2 + 2.2 * height), layout="constrained")
    panels = list(figure.subplots(height, columns, squeeze=False).flat)
    for unused in panels[len(names) :]:
        unused.set_axis_off()
    panel = dict(zip(names, panels, strict=False))
    best: dict[str, list[float]] = {}
    for run in runs:
        name, kind, _ = run.name.rsplit("-", 2)
        task = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["task"]
        score = get_task(task).score_name
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        scores = [100 * record["dev"][score] for record in map(json.loads, lines)]
        color = "C1" if kind == "elmo" else "C0"
        panel[name].plot(range(1, len(scores) + 1), scores, color=color, linewidth=1)
        panel[name].set_title(f"{name} ({score})", fontsize=9)
        best.setdefault(name, []).append(max(scores))
    for name, scores in best.items():  # hide the low scores of the first epochs
        spread = max(scores) - min(scores)
        panel[name].set_ylim(min(scores) - 1.5 * spread - 1, max(scores) + 0.2 * spread + 0.2)
    figure.supxlabel("epoch", fontsize=9)
    figure.suptitle(
        "dev scores: + ELMo (orange) and baseline (blue), one line per seed", fontsize=10
    )
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print the table and, if requested, write the plot."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--plot", type=Path, help="write a plot of the learning curves")
    args = parser.parse_args()
    print(table(read_rows(args.runs)))
    if args.plot:
        plot(args.runs, args.plot)


if __name__ == "__main__":
    main()
