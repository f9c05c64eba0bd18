"""Table 3: where ELMo enters a task's model, at the input of its RNN, at its output, or both."""

from elmore.analysis.paired import differences, judge_gain
from elmore.analysis.results import Result
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, scores_on_dev
from elmore.analysis.training.variants import (
    Variant,
    all_variant_runs,
    variant_datasets,
    variant_runs,
    variant_table,
)

VARIANTS = {
    "input only": Variant(("elmo.place=input",), {"squad": 85.1, "snli": 88.9, "srl": 84.7}),
    "input and output": Variant(("elmo.place=both",), {"squad": 85.6, "snli": 89.5, "srl": 84.3}),
    "output only": Variant(("elmo.place=output",), {"squad": 84.8, "snli": 88.7, "srl": 80.9}),
}
"""Rows with the scores of Peters et al. (2018)."""

_COMPARED = {"sick": "snli"}
"""For datasets that the paper does not use, the one to compare with."""


def table3_runs(plan: Plan) -> list[TrainingRun]:
    """Return all runs of the table."""
    return all_variant_runs(plan, VARIANTS)


def measure_table3(plan: Plan, results: Results) -> Result:
    """Return dev scores by position, and whether the best position is that of the paper."""
    findings = []
    for dataset in variant_datasets(plan):
        scores = {
            name: scores_on_dev(results, variant_runs(plan, dataset, variant))
            for name, variant in VARIANTS.items()
        }
        compared = _COMPARED.get(dataset, dataset)
        paper = max(VARIANTS, key=lambda name: VARIANTS[name].published[compared])
        of_paper = scores.pop(paper)
        best_other = {
            seed: max(other[seed] for other in scores.values())
            for seed in of_paper
            if all(seed in other for other in scores.values())
        }
        if gains := differences(best_other, of_paper):
            claim = f"{DATASETS[dataset].title}: {paper} is better than the best other of each seed"
            if compared != dataset:
                claim += f", as on {DATASETS[compared].title} in the paper"
            findings.append(judge_gain(claim, gains))
    return Result(variant_table(plan, results, VARIANTS), {}, tuple(findings))
