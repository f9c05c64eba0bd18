"""Table 1 of the paper, from runs of `elmore train`: baseline, with ELMo, and what it gains.

Run as: python experiments/table1.py RUNS [--plot curves.png]

RUNS holds folders named ROW-baseline-SEED and ROW-elmo-SEED, as in conll2003-elmo-0. A run is
scored on its test set, or on its dev set if it has no other.
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
"""Test scores of Peters et al. (2018) by row, and the set that they are for."""

_PANELS_A_ROW = 4


class Row(NamedTuple):
    """A data set, and the scores of its runs in percent."""

    name: str
    baseline: list[float]
    elmo: list[float]
    cut_short: int = 0
    """Runs that time has ended."""

    @property
    def error_reduction(self) -> float:
        """The share of the baseline's errors that ELMo removes, in percent."""
        before, after = statistics.mean(self.baseline), statistics.mean(self.elmo)
        return 100 * (after - before) / (100 - before)


def read_rows(folder: Path) -> list[Row]:
    """Read the scores of all complete runs; a row needs runs of both kinds."""
    found: dict[str, dict[str, list[float]]] = {}
    cut_short: Counter[str] = Counter()
    for path in sorted(folder.glob("*/metrics.json")):
        name, kind, _ = path.parent.name.rsplit("-", 2)
        summary = json.loads(path.read_text(encoding="utf-8"))
        scores = summary["scores"].get("test") or summary["scores"]["dev"]
        score = 100 * scores[get_task(summary["task"]).score_name]
        found.setdefault(name, {}).setdefault(kind, []).append(score)
        cut_short[name] += summary["cut_short"]
    return [
        Row(name, kinds["baseline"], kinds["elmo"], cut_short[name])
        for name, kinds in found.items()
        if kinds.keys() >= {"baseline", "elmo"}
    ]


def show(scores: list[float]) -> str:
    """Return the mean and, of several runs, the standard deviation."""
    mean = f"{statistics.mean(scores):.2f}"
    return f"{mean} +- {statistics.stdev(scores):.2f}" if len(scores) > 1 else mean


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown, beside the paper's."""
    lines = [
        "| set | runs | baseline | + ELMo | error reduction "
        "| paper: set | baseline | + ELMo | error reduction |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        paper = "| | | | |"
        if row.name in PAPER:
            name, before, after = PAPER[row.name]
            theirs = Row(name, [before], [after])
            paper = f"| {name} | {before} | {after} | {theirs.error_reduction:.1f} % |"
        runs = f"{len(row.baseline)}, {len(row.elmo)}"
        runs += f" ({row.cut_short} cut short)" if row.cut_short else ""
        ours = f"| {row.name} | {runs} | {show(row.baseline)} | {show(row.elmo)} "
        lines.append(f"{ours}| {row.error_reduction:.1f} % {paper}")
    return "\n".join(lines)


def plot(folder: Path, path: Path) -> None:
    """Draw the dev score of all complete runs over their epochs, a row of the table in a panel."""
    from matplotlib.figure import Figure

    runs = [run.parent for run in sorted(folder.glob("*/metrics.json"))]
    names = list(dict.fromkeys(run.name.rsplit("-", 2)[0] for run in runs))
    if not names:
        raise SystemExit(f"table1: no complete run in {folder}")
    columns = min(_PANELS_A_ROW, len(names))
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
    for name, scores in best.items():  # the first epochs would hide the rest
        room = max(scores) - min(scores)
        panel[name].set_ylim(min(scores) - 1.5 * room - 1, max(scores) + 0.2 * room + 0.2)
    figure.supxlabel("epoch", fontsize=9)
    figure.suptitle("dev scores: + ELMo (orange) and baseline (blue), a line a seed", fontsize=10)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--plot", type=Path, help="a picture of the learning curves")
    args = parser.parse_args()
    print(table(read_rows(args.runs)))
    if args.plot:
        plot(args.runs, args.plot)


if __name__ == "__main__":
    main()
