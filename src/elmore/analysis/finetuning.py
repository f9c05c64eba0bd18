"""Fine-tuning the biLM on the text of a task: its perplexity, and the effect on the task."""

from elmore.analysis.paired import differences, judge_gain
from elmore.analysis.results import Cell, Result
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, finished, scores_on_dev

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
    """Return perplexity before and after fine-tuning, and dev scores with and without it."""
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
        without, with_it = (scores_on_dev(results, runs) for runs in (as_it_is, fine_tuned))
        gains = differences(without, with_it)
        same_seeds = [score for seed, score in without.items() if seed in with_it]
        cells["dev score, biLM as it is"] = same_seeds
        cells["dev score, biLM fine-tuned"] = list(with_it.values())
        cells["gain"] = gains
        if gains:
            claim = f"Fine-tuning helps on {DATASETS[dataset].title}"
            findings.append(judge_gain(claim, gains))
        rows[DATASETS[dataset].heading] = cells
    return Result(rows, {}, tuple(findings))


def _both(plan: Plan, dataset: str) -> tuple[list[TrainingRun], list[TrainingRun]]:
    tuned = plan.runs(dataset, plan.bilm, "elmo.finetune=true")
    return plan.runs(dataset, plan.bilm), tuned


def _datasets(plan: Plan) -> tuple[str, ...]:
    return _QUICK_DATASETS if plan.quick else _DATASETS
