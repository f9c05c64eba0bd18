"""Tables of dev scores with one row per way to use ELMo."""

from collections.abc import Mapping
from typing import NamedTuple

from elmore.analysis.results import Cell
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Plan, Results, TrainingRun, scores_on_dev

_DATASETS, _QUICK_DATASETS = ("squad", "snli", "sick", "srl"), ("snli",)


class Variant(NamedTuple):
    """A row of a table."""

    settings: tuple[str, ...] | None
    """Settings of ELMo; None is the baseline."""

    published: Mapping[str, float]
    """Dev scores in the paper, which does not use SICK, by dataset."""


def variant_datasets(plan: Plan) -> tuple[str, ...]:
    """Return the datasets of Tables 2 and 3."""
    return _QUICK_DATASETS if plan.quick else _DATASETS


def variant_runs(plan: Plan, dataset: str, variant: Variant) -> list[TrainingRun]:
    """Return the runs of a cell."""
    if variant.settings is None:
        return plan.runs(dataset, None)
    return plan.runs(dataset, plan.bilm, *variant.settings)


def all_variant_runs(plan: Plan, variants: Mapping[str, Variant]) -> list[TrainingRun]:
    """Return the runs of a table."""
    return [
        run
        for variant in variants.values()
        for dataset in variant_datasets(plan)
        for run in variant_runs(plan, dataset, variant)
    ]


def variant_table(
    plan: Plan, results: Results, variants: Mapping[str, Variant]
) -> dict[str, dict[str, Cell]]:
    """Return the dev scores of finished runs beside those of the paper.

    Datasets without a finished run with ELMo are left out.
    """
    rows: dict[str, dict[str, Cell]] = {name: {} for name in variants}
    for dataset in variant_datasets(plan):
        scores = {
            name: list(scores_on_dev(results, variant_runs(plan, dataset, variant)).values())
            for name, variant in variants.items()
        }
        if not any(scores[name] for name, variant in variants.items() if variant.settings):
            continue
        for name, variant in variants.items():
            rows[name][DATASETS[dataset].heading] = scores[name]
            if dataset in variant.published:
                rows[name][f"{DATASETS[dataset].title}, paper"] = str(variant.published[dataset])
    return rows if any(rows.values()) else {}
