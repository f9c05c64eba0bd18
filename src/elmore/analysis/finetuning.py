"""Fine-tuning the biLM on the text of a task: its perplexity, and the effect on the task."""

import statistics

from elmore.analysis.results import Cell, Result, finding
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, finished

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
    """Return perplexity and dev score before and after fine-tuning."""
    rows: dict[str, dict[str, Cell]] = {}
    findings = []
    for dataset in _datasets(plan):
        before, after = (finished(results, runs) for runs in _both(plan, dataset))
        cells: dict[str, Cell] = {}
        perplexities = [run.perplexity for run in after if run.perplexity]
        if perplexities:
            cells["perplexity before"] = [pair[0] for pair in perplexities]
            cells["perplexity after"] = [pair[1] for pair in perplexities]
            if dataset in _PUBLISHED:
                cells["paper: before"], cells["paper: after"] = map(str, _PUBLISHED[dataset])
        if before:
            cells["dev score, biLM as it is"] = [run.dev for run in before]
        if after:
            cells["dev score, biLM fine-tuned"] = [run.dev for run in after]
        if cells:
            rows[DATASETS[dataset].heading] = cells
        if before and after:
            gain = statistics.mean(r.dev for r in after) - statistics.mean(r.dev for r in before)
            claim = f"Fine-tuning helps on {DATASETS[dataset].title}"
            findings.append(finding(claim, gain > 0, f"{gain:+.2f} on dev"))
    return Result(rows, {}, tuple(findings))


def _both(plan: Plan, dataset: str) -> tuple[list[TrainingRun], list[TrainingRun]]:
    tuned = plan.runs(dataset, plan.bilm, "elmo.finetune=true")
    return plan.runs(dataset, plan.bilm), tuned


def _datasets(plan: Plan) -> tuple[str, ...]:
    return _QUICK_DATASETS if plan.quick else _DATASETS
