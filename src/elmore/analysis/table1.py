"""Table 1: the six tasks with and without ELMo."""

import math
from collections.abc import Mapping

from elmore.analysis.paired import Interval, interval
from elmore.analysis.results import Cell, Plot, Result
from elmore.analysis.svg import BASELINE, ELMO, PAPER, mean_and_spread, new_figure, to_plot
from elmore.analysis.training.datasets import DATASETS, SAME_DATA
from elmore.analysis.training.run import (
    Plan,
    Results,
    TrainingRun,
    describe_seeds,
    finished,
    scores_on_test,
)

_COLUMNS = 3
_LONG = 5  # epochs of a run whose first scores are not shown, because they hide the differences


def table1_runs(plan: Plan) -> list[TrainingRun]:
    """Return all runs of the table."""
    return [
        run
        for name, dataset in DATASETS.items()
        if dataset.published or not plan.quick
        for bilm in (None, *plan.bilms)
        for run in plan.table1_runs(name, bilm)
    ]


def error_reduction(before: float, after: float) -> float:
    """Return the relative error reduction in percent, given two scores in percent."""
    return 100 * (after - before) / (100 - before)


def measure_table1(plan: Plan, results: Results) -> Result:
    """Return the test scores of all seeds beside those of the paper."""
    rows: dict[str, dict[str, Cell]] = {}
    findings = []
    for name, dataset in DATASETS.items():
        baseline = scores_on_test(results, plan.table1_runs(name, None))
        elmo = {b: scores_on_test(results, plan.table1_runs(name, b)) for b in plan.bilms}
        if not baseline and not any(elmo.values()):
            continue
        cells: dict[str, Cell] = {
            "seeds": _describe_seeds({"baseline": baseline, **elmo}),
            "baseline": list(baseline.values()),
        }
        for bilm, scores in elmo.items():
            cells[f"+ ELMo ({bilm})"] = list(scores.values())
            cells[f"relative error reduction ({bilm}), %"] = error_reductions(baseline, scores)
        if dataset.published:
            data, before, after = dataset.published
            paper = error_reduction(before, after)
            cells |= {
                "paper: data": data,
                "paper: baseline": f"{before}",
                "paper: + ELMo": f"{after}",
                "paper: relative error reduction, %": f"{paper:.1f}",
            }
            if ours := error_reductions(baseline, elmo[plan.bilm]):
                findings.append(_compare(dataset.title, interval(ours), paper, data))
        rows[dataset.heading] = cells
    titles = ", ".join(DATASETS[name].title for name in DATASETS if name in plan.finetuned)
    note = (
        f"The biLM was fine-tuned on the training text of {titles} (section 3.4)."
        if titles
        else "The biLM was not fine-tuned on the text of the tasks; in the paper, it was in most "
        "cases (section 3.4)."
    )
    return Result(rows, {}, tuple(findings), (note,))


def _compare(title: str, ours: Interval, paper: float, data: str) -> str:
    """Return a sentence on a relative error reduction beside that of the paper."""
    measured = f"{title}: the relative error reduction is {ours.mean:.1f} % ({ours})"
    if data != SAME_DATA:
        return f"{measured}. The paper's {paper:.1f} % is on other data, {data}."
    relation = "below" if ours.high < paper else "above" if ours.low > paper else "consistent with"
    return f"{measured}, {relation} the paper's {paper:.1f} %."


def _describe_seeds(scores: Mapping[str, Mapping[int, float]]) -> str:
    """Return the seeds of all columns, or of each if they differ."""
    seeds = {column: describe_seeds(of_column) for column, of_column in scores.items()}
    if len(set(seeds.values())) == 1:
        return next(iter(seeds.values()))
    return "; ".join(f"{column}: {text}" for column, text in seeds.items())


def plot_table1(plan: Plan, results: Results) -> list[Plot]:
    """Plot the relative error reductions, and the dev scores by epoch."""
    plots = [_plot_reductions(plan, results), _plot_curves(plan, results)]
    return [plot for plot in plots if plot]


def error_reductions(baseline: Mapping[int, float], elmo: Mapping[int, float]) -> list[float]:
    """Return the error reduction of each seed that both have, if the baseline has errors."""
    return [
        error_reduction(score, elmo[seed])
        for seed, score in baseline.items()
        if seed in elmo and score < 100
    ]


def _plot_reductions(plan: Plan, results: Results) -> Plot | None:
    shown = {}
    for name in DATASETS:
        baseline = scores_on_test(results, plan.table1_runs(name, None))
        for bilm in plan.bilms:
            elmo = scores_on_test(results, plan.table1_runs(name, bilm))
            if reductions := error_reductions(baseline, elmo):
                shown[name, bilm] = reductions
    names = [name for name in DATASETS if any(key[0] == name for key in shown)]
    if not names:
        return None
    figure = new_figure(7, 1.4 + 0.4 * len(names))
    axes = figure.add_subplot(xlabel="relative error reduction on the test set (%)")
    for i, bilm in enumerate(plan.bilms):
        points = [(names.index(n), *mean_and_spread(r)) for (n, b), r in shown.items() if b == bilm]
        if points:
            rows, means, spreads = zip(*points, strict=True)
            heights = [row + 0.15 * i for row in rows]
            color = ELMO if i == 0 else f"C{i + 1}"
            style = {"fmt": "o", "capsize": 3, "color": color, "label": f"ELMo ({bilm})"}
            axes.errorbar(means, heights, xerr=spreads, **style)
    published = [
        (row, error_reduction(*dataset.published[1:]))
        for row, dataset in enumerate(DATASETS[name] for name in names)
        if dataset.published
    ]
    if published:
        style = {"color": PAPER, "markerfacecolor": "none", "label": "paper"}
        axes.plot([x for _, x in published], [row for row, _ in published], "D", **style)
    axes.set_yticks(range(len(names)), [DATASETS[name].title for name in names])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.5)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    caption = (
        "Relative error reduction by ELMo. Error bars: standard deviation over "
        "pairs of runs with the same seed. The paper's datasets differ in part; see the notes."
    )
    return to_plot(figure, "table1-error-reduction", caption)


def _plot_curves(plan: Plan, results: Results) -> Plot | None:
    curves = {
        name: {bilm: finished(results, plan.table1_runs(name, bilm)) for bilm in (None, plan.bilm)}
        for name in DATASETS
    }
    names = [name for name, kinds in curves.items() if any(kinds.values())]
    if not names:
        return None
    height = math.ceil(len(names) / _COLUMNS)
    figure = new_figure(8, 0.8 + 2.1 * height)
    panels = list(figure.subplots(height, _COLUMNS, squeeze=False).flat)
    for unused in panels[len(names) :]:
        unused.set_axis_off()
    for name, panel in zip(names, panels, strict=False):
        best, epochs = [], 0
        for bilm, runs in curves[name].items():
            for run in runs:
                epochs = max(epochs, len(run.curve))
                marker = "." if len(run.curve) < 3 else ""
                color = ELMO if bilm else BASELINE
                numbers = range(1, len(run.curve) + 1)
                panel.plot(numbers, run.curve, marker=marker, color=color, linewidth=1)
                best.append(max(run.curve))
        if epochs >= _LONG:
            spread = max(best) - min(best)
            panel.set_ylim(min(best) - 1.5 * spread - 1, max(best) + 0.2 * spread + 0.2)
        panel.set_ylim(bottom=max(0, panel.get_ylim()[0]))
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_title(DATASETS[name].heading, fontsize=9)
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("dev score (%)", fontsize=9)
    caption = (
        f"Dev scores after each epoch, one line per seed: baseline in gray, with ELMo "
        f"({plan.bilm}) in blue. Of runs with {_LONG} epochs or more, low scores of the first "
        "epochs are not shown."
    )
    return to_plot(figure, "table1-curves", caption)
