"""Figure 1: how many training examples and epochs a task needs, with and without ELMo."""

import statistics

from elmore.analysis.paired import differences, interval, judge_gain
from elmore.analysis.results import Cell, Plot, Result
from elmore.analysis.svg import BASELINE, ELMO, mean_and_spread, new_figure, to_plot
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, scores_on_dev

_DATASETS = ("snli", "sick", "srl")
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_QUICK_DATASETS, _QUICK_SHARES = ("snli",), (0.1, 0.3, 1.0)
_COMPARED = _FEW, _MANY = 0.01, 0.1
"""Section 5.4: ELMo with 1 % of the data is about as good as the baseline with 10 %."""


def figure1_runs(plan: Plan) -> list[TrainingRun]:
    """Return all runs of the figure."""
    return [
        run
        for dataset in _datasets(plan)
        for share in _shares(plan)
        for bilm in (None, plan.bilm)
        for run in plan.runs(dataset, bilm, share=share)
    ]


def measure_figure1(plan: Plan, results: Results) -> Result:
    """Return dev scores by share of the training data, and the epochs that ELMo saves."""
    rows: dict[str, dict[str, Cell]] = {}
    findings = []
    for dataset in _datasets(plan):
        title = DATASETS[dataset].heading
        shares = _shares(plan) if _has_shares(plan, results, dataset) else ()
        for share in shares:
            for bilm in (None, plan.bilm):
                if scores := scores_on_dev(results, plan.runs(dataset, bilm, share=share)):
                    column = f"{title}, {'+ ELMo' if bilm else 'baseline'}"
                    row = rows.setdefault(f"{100 * share:g} % of the training data", {})
                    row[column] = list(scores.values())
        findings += _compare_shares(plan, results, dataset)
        findings += _compare_epochs(plan, results, dataset)
    return Result(rows, {}, tuple(findings))


def _compare_shares(plan: Plan, results: Results, dataset: str) -> list[str]:
    """Return a sentence on ELMo with few examples and the baseline with many, if both have run."""
    baseline, elmo = (
        {
            share: scores_on_dev(results, plan.runs(dataset, bilm, share=share))
            for share in _COMPARED
        }
        for bilm in (None, plan.bilm)
    )
    gains = differences(baseline[_MANY], elmo[_FEW])
    if not gains:
        return []
    claim = (
        f"{DATASETS[dataset].heading}: ELMo with {100 * _FEW:g} % of the data is better than the "
        f"baseline with {100 * _MANY:g} %"
    )
    by_data = differences(baseline[_FEW], baseline[_MANY])
    if by_data and interval(by_data).low <= 0:
        few, many = (statistics.mean(baseline[share].values()) for share in _COMPARED)
        return [
            f"{claim}: not tested, because more data hardly helps the baseline here "
            f"({few:.2f} with {100 * _FEW:g} %, {many:.2f} with {100 * _MANY:g} %)."
        ]
    return [judge_gain(claim, gains)]


def _compare_epochs(plan: Plan, results: Results, dataset: str) -> list[str]:
    """Return a sentence on the epochs to the baseline's best score, if runs have finished."""
    to_best, to_exceed, never = [], [], 0
    runs = zip(plan.runs(dataset, None), plan.runs(dataset, plan.bilm), strict=True)
    for without, with_elmo in runs:
        if without.name in results and with_elmo.name in results:
            before, after = results[without.name].curve, results[with_elmo.name].curve
            best = max(before)
            to_best.append(before.index(best) + 1)
            exceeding = [epoch for epoch, score in enumerate(after, 1) if score > best]
            to_exceed += exceeding[:1]
            never += not exceeding
    if not to_best:
        return []
    sentence = (
        f"{DATASETS[dataset].heading}: the baseline has its best dev score after "
        f"{statistics.mean(to_best):.1f} epochs"
    )
    if to_exceed:
        sentence += f"; ELMo exceeds it after {statistics.mean(to_exceed):.1f}"
    if never:
        sentence += f"; in {never} of {len(to_best)} seeds, ELMo does not exceed it"
    seeds = "one seed" if len(to_best) == 1 else f"mean over {len(to_best)} seeds"
    return [f"{sentence} (all training data, {seeds})."]


def plot_figure1(plan: Plan, results: Results) -> list[Plot]:
    """Plot the dev scores against the share of the training data."""
    names = [name for name in _datasets(plan) if _has_shares(plan, results, name)]
    if not names:
        return []
    figure = new_figure(4 * len(names), 3.4)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False).flat, names, strict=True):
        for bilm, color, label in ((None, BASELINE, "baseline"), (plan.bilm, ELMO, "+ ELMo")):
            if points := _points(plan, results, name, bilm):
                shares, means, spreads = zip(*points, strict=True)
                style = {"fmt": "o-", "markersize": 4, "capsize": 3, "color": color, "label": label}
                axes.errorbar(shares, means, yerr=spreads, **style)
        axes.set_xscale("log")
        axes.set_xticks([100 * share for share in _shares(plan)])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title(DATASETS[name].title, fontsize=10)
        axes.set_xlabel("share of the training data (%)")
        axes.set_ylabel(f"dev {DATASETS[name].score} (%)")
        axes.grid(alpha=0.3)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    caption = (
        "Dev score against the share of the training data, on a logarithmic axis. Error bars: "
        "standard deviation over seeds, each of which draws its own sample."
    )
    return [to_plot(figure, "figure1", caption)]


def _points(
    plan: Plan, results: Results, dataset: str, bilm: str | None
) -> list[tuple[float, float, float]]:
    """Return share in percent, mean and standard deviation of each point."""
    scores = ((s, scores_on_dev(results, plan.runs(dataset, bilm, share=s))) for s in _shares(plan))
    return [(100 * share, *mean_and_spread(list(dev.values()))) for share, dev in scores if dev]


def _has_shares(plan: Plan, results: Results, dataset: str) -> bool:
    """Return whether any run on less than all training data has finished."""
    return any(
        run.name in results
        for share in _shares(plan)
        if share < 1
        for bilm in (None, plan.bilm)
        for run in plan.runs(dataset, bilm, share=share)
    )


def _datasets(plan: Plan) -> tuple[str, ...]:
    return _QUICK_DATASETS if plan.quick else _DATASETS


def _shares(plan: Plan) -> tuple[float, ...]:
    return _QUICK_SHARES if plan.quick else SHARES
