"""Fine-tuning the biLM on the text of a task: its perplexity, and the effect on the task."""

from elmore.analysis.results import Cell, Result, finding
from elmore.analysis.svg import mean_and_spread
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, dev_scores, finished

_DATASETS = tuple(name for name, dataset in DATASETS.items() if dataset.published)
_QUICK_DATASETS = ("conll2003",)
_PUBLISHED = {
    "squad": (99.1, 43.5),
    "snli": (72.1, 16.8),
    "conll2003": (103.2, 46.3),
    "sst5": (131.5, 78.6),
}
"""Perplexity before and after fine-tuning in Peters et al. (2018); of SQuAD, the contexts."""


def finetuning_runs(plan: Plan) -> list[TrainingRun]:
    """Return all runs of the table: with the biLM as it is, and fine-tuned."""
    return [run for dataset in _datasets(plan) for runs in _both(plan, dataset) for run in runs]


def measure_finetuning(plan: Plan, results: Results) -> Result:
    """Return perplexity and dev score before and after fine-tuning.

    The dev score counts as better if the mean gain over pairs of runs with the same seed is larger
    than their standard deviation.
    """
    rows: dict[str, dict[str, Cell]] = {}
    findings = []
    for dataset in _datasets(plan):
        as_it_is, fine_tuned = _both(plan, dataset)
        after = finished(results, fine_tuned)
        if not after:
            continue
        cells: dict[str, Cell] = {}
        perplexities = [run.perplexity for run in after if run.perplexity]
        if perplexities:
            cells["perplexity before"] = [pair[0] for pair in perplexities]
            cells["perplexity after"] = [pair[1] for pair in perplexities]
            if dataset in _PUBLISHED:
                cells["paper: before"], cells["paper: after"] = map(str, _PUBLISHED[dataset])
        if before := dev_scores(results, as_it_is):
            cells["dev score, biLM as it is"] = before
        cells["dev score, biLM fine-tuned"] = [run.dev for run in after]
        gains = [
            results[tuned.name].dev - results[run.name].dev
            for run, tuned in zip(as_it_is, fine_tuned, strict=True)
            if run.name in results and tuned.name in results
        ]
        if gains:
            cells["gain, same seeds"] = gains
            gain, spread = mean_and_spread(gains)
            claim = f"Fine-tuning helps on {DATASETS[dataset].title}"
            evidence = f"{gain:+.2f} on dev in 1 pair of runs"
            if len(gains) > 1:
                evidence = f"{gain:+.2f} ± {spread:.2f} on dev in {len(gains)} pairs of runs"
            findings.append(finding(claim, gain > spread, evidence))
        rows[DATASETS[dataset].heading] = cells
    return Result(rows, {}, tuple(findings))


def _both(plan: Plan, dataset: str) -> tuple[list[TrainingRun], list[TrainingRun]]:
    tuned = plan.runs(dataset, plan.bilm, "elmo.finetune=true")
    return plan.runs(dataset, plan.bilm), tuned


def _datasets(plan: Plan) -> tuple[str, ...]:
    return _QUICK_DATASETS if plan.quick else _DATASETS
