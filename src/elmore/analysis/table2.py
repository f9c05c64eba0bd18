"""Table 2: which layers to use, the last or all of them, and how strongly to regularize the mix."""

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

_LAST = "last layer only"
_ALL = {"1": "all layers, lambda = 1", "0.001": "all layers, lambda = 0.001"}
VARIANTS = {
    "baseline": Variant(None, {"squad": 80.8, "snli": 88.1, "srl": 81.6}),
    _LAST: Variant(("elmo.layers=top",), {"squad": 84.7, "snli": 89.1, "srl": 84.1}),
    _ALL["1"]: Variant(("elmo.penalty=1.0",), {"squad": 85.0, "snli": 89.3, "srl": 84.6}),
    _ALL["0.001"]: Variant(("elmo.penalty=0.001",), {"squad": 85.2, "snli": 89.5, "srl": 84.8}),
}
"""Rows with the scores of Peters et al. (2018)."""


def table2_runs(plan: Plan) -> list[TrainingRun]:
    """Return all runs of the table."""
    return all_variant_runs(plan, VARIANTS)


def measure_table2(plan: Plan, results: Results) -> Result:
    """Return dev scores by layers and lambda, and whether all layers are better than the last."""
    findings = []
    for dataset in variant_datasets(plan):
        last = scores_on_dev(results, variant_runs(plan, dataset, VARIANTS[_LAST]))
        for penalty, name in _ALL.items():
            scores = scores_on_dev(results, variant_runs(plan, dataset, VARIANTS[name]))
            if gains := differences(last, scores):
                title = DATASETS[dataset].title
                claim = f"{title}: all layers (lambda = {penalty}) are better than the last one"
                findings.append(judge_gain(claim, gains))
    return Result(variant_table(plan, results, VARIANTS), {}, tuple(findings))
