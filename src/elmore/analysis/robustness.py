"""Robustness of NER to typos, changed case and unseen words, with ELMo and with GloVe alone."""

from dataclasses import replace

from elmore.analysis.paired import differences, judge_gain
from elmore.analysis.results import Cell, Plot, Result
from elmore.analysis.svg import BASELINE, ELMO, mean_and_spread, new_figure, to_plot
from elmore.analysis.table1 import error_reductions
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.noise import KINDS, NOISES, PERCENT, Noise
from elmore.analysis.training.run import Plan, Results, TrainingRun

_DATASET = "conll2003"


def robustness_runs(plan: Plan) -> list[TrainingRun]:
    """Return the runs: those of Table 1, which score disturbed copies of the test set as well."""
    return [run for bilm in (None, plan.bilm) for run in _runs(plan, bilm)]


def measure_robustness(plan: Plan, results: Results) -> Result:
    """Return the test F1 of all seeds as the text is, and on its disturbed copies."""
    rows: dict[str, dict[str, Cell]] = {}
    findings = []
    for noise in (None, *NOISES):
        baseline, elmo = (_scores(plan, results, bilm, noise) for bilm in (None, plan.bilm))
        if baseline or elmo:
            rows[f"{noise.kind}, {noise.percent} %" if noise else "as it is"] = {
                "baseline": list(baseline.values()),
                f"+ ELMo ({plan.bilm})": list(elmo.values()),
                "relative error reduction, %": error_reductions(baseline, elmo),
            }
    for kind in KINDS:
        most = Noise(kind, PERCENT[-1])
        without, with_elmo = (_losses(plan, results, bilm, most) for bilm in (None, plan.bilm))
        if gains := differences(with_elmo, without):
            claim = f"With {most.percent} % noise ({kind}), NER loses less F1 with ELMo"
            findings.append(judge_gain(claim, gains))
    notes = ("The baseline has a character CNN beside GloVe, as all NER models here do.",)
    return Result(rows, {}, tuple(findings), notes)


def plot_robustness(plan: Plan, results: Results) -> list[Plot]:
    """Plot F1 against the share of disturbed letters, for each kind of noise."""
    lines = {
        (kind, bilm): [
            (percent, *mean_and_spread(list(scores.values())))
            for percent in (0, *PERCENT)
            if (scores := _scores(plan, results, bilm, Noise(kind, percent) if percent else None))
        ]
        for kind in KINDS
        for bilm in (None, plan.bilm)
    }
    if not any(lines.values()):
        return []
    figure = new_figure(8, 3)
    for axes, kind in zip(figure.subplots(1, len(KINDS), sharey=True), KINDS, strict=True):
        for bilm, color, label in ((None, BASELINE, "baseline"), (plan.bilm, ELMO, "+ ELMo")):
            if points := lines[kind, bilm]:
                percent, means, spreads = zip(*points, strict=True)
                style = {"fmt": "o-", "markersize": 4, "capsize": 3, "color": color, "label": label}
                axes.errorbar(percent, means, yerr=spreads, **style)
        axes.set_title(kind, fontsize=10)
        axes.set_xticks((0, *PERCENT))
        axes.grid(alpha=0.3)
    low, high = figure.axes[0].get_ylim()
    figure.axes[0].set_ylim(max(low, 0), max(high, 1))  # F1 is not negative, also if all are 0
    figure.axes[0].set_ylabel(f"test {DATASETS[_DATASET].score} (%)")
    figure.axes[0].legend(frameon=False, loc="lower left")
    figure.supxlabel("letters disturbed (%)", fontsize=10)
    caption = (
        f"{DATASETS[_DATASET].title} with disturbed test sentences; the models were trained on "
        "clean text. Error bars: standard deviation over seeds."
    )
    return [to_plot(figure, "robustness", caption)]


def _runs(plan: Plan, bilm: str | None) -> list[TrainingRun]:
    return [replace(run, disturbed=True) for run in plan.table1_runs(_DATASET, bilm)]


def _scores(
    plan: Plan, results: Results, bilm: str | None, noise: Noise | None
) -> dict[int, float]:
    """Return test scores by seed; without noise, those of the test set as it is."""
    scores = {}
    for run in _runs(plan, bilm):
        if run.name in results:
            result = results[run.name]
            scores[run.seed] = result.disturbed.get(noise.name) if noise else result.test
    return {seed: score for seed, score in scores.items() if score is not None}


def _losses(plan: Plan, results: Results, bilm: str | None, noise: Noise) -> dict[int, float]:
    """Return how much each seed loses by noise."""
    clean, disturbed = (_scores(plan, results, bilm, kind) for kind in (None, noise))
    return {seed: clean[seed] - score for seed, score in disturbed.items() if seed in clean}
