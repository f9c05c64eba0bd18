"""Runs as values. Oracle: the names of the runs, which are those of their files."""

from pathlib import Path

import pytest

import elmore
from elmore.analysis.evaluation import TrainingPart
from elmore.analysis.parts import PARTS
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Bilm, Plan, plan_training
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.tasks.train import read_task_config
from tests.analysis.training.fake import TINY


def names(plan: Plan, part: str) -> set[str]:
    chosen = PARTS[part]
    assert isinstance(chosen, TrainingPart)
    return {run.name for run in chosen.runs(plan)}


def test_runs_are_named_after_what_differs_from_the_defaults() -> None:
    [first, *_] = TINY.runs("squad", "tiny", "elmo.place=output", "elmo.penalty=1.0", share=0.01)
    assert first.name == "squad-tiny-place_output-penalty_1.0-share_0.01-0"
    assert [run.name for run in TINY.runs("sick", None)] == [
        "sick-baseline-0", "sick-baseline-1", "sick-baseline-2",
    ]  # fmt: skip


def test_settings_that_equal_the_defaults_do_not_make_another_run() -> None:
    assert TINY.runs("snli", "tiny", "elmo.place=both", "elmo.penalty=0.001") == TINY.runs(
        "snli", "tiny"
    )
    assert TINY.runs("srl", "tiny", "elmo.place=both") != TINY.runs("srl", "tiny")


def test_baseline_does_not_depend_on_settings_of_elmo() -> None:
    bilm, transformer = Bilm("tiny", "hash", "bf16"), Bilm("bert", "hash")
    plan = Plan(
        bilms={"tiny": bilm}, transformers={"bert": transformer}, settings=("training.epochs=3",)
    )
    for encoder in (None, "bert"):
        [run, *_] = plan.runs("sick", encoder)
        assert run.settings == (("training.epochs", 3),)
    [run, *_] = plan.runs("sick", "tiny")
    assert run.settings == (("elmo.precision", "bf16"), ("training.epochs", 3))
    assert run.name == "sick-tiny-precision_bf16-training.epochs_3-0"


def test_tables_share_runs() -> None:
    """Table 1 already has the baselines of all parts, and ELMo with the default settings."""
    table1 = names(TINY, "table1")
    assert {f"squad-baseline-{seed}" for seed in range(3)} <= table1 & names(TINY, "table2")
    assert names(TINY, "table2") - table1 == {
        f"{variant}-{seed}"
        for variant in (
            "squad-tiny-layers_top", "squad-tiny-penalty_1.0", "squad-tiny-penalty_0.001",
            "snli-tiny-layers_top", "snli-tiny-penalty_1.0",
            "sick-tiny-layers_top", "sick-tiny-penalty_1.0",
            "srl-tiny-layers_top", "srl-tiny-penalty_1.0",
        )
        for seed in range(3)
    }  # fmt: skip
    assert names(TINY, "table3") - table1 == {
        f"{dataset}-tiny-place_{place}-{seed}"
        for dataset, place in (
            ("squad", "input"), ("squad", "output"), ("snli", "input"), ("snli", "output"),
            ("sick", "input"), ("sick", "output"), ("srl", "output"), ("srl", "both"),
        )
        for seed in range(3)
    }  # fmt: skip
    assert {"snli-tiny-2", "sick-tiny-0", "srl-baseline-0"} <= names(TINY, "figure1")
    assert len({run.rpartition("share_")[2][:-2] for run in names(TINY, "figure1")}) >= 6
    assert names(TINY, "figure2") & names(TINY, "table3") >= {"srl-tiny-place_both-0"}
    assert {"coref-tiny-finetune_True-0", "coref-tiny-0"} <= names(TINY, "finetuning")


def test_table1_has_three_or_five_seeds_and_a_column_per_model() -> None:
    plan = Plan(bilms={**TINY.bilms, "large": Bilm("large", "another hash")})
    table1 = names(plan, "table1")
    for kind in ("baseline", "tiny", "large"):
        seeds = {
            name: sum(run.startswith(f"{name}-{kind}-") for run in table1) for name in DATASETS
        }
        assert seeds == {name: 5 if name in ("conll2003", "sst5") else 3 for name in DATASETS}
    assert len(names(Plan(bilms=TINY.bilms, seeds=2), "table1")) == 2 * 2 * len(DATASETS)


def test_test_sets_are_scored_by_runs_of_table1_and_of_transformers_only() -> None:
    transformers = {"bert": Bilm("bert", "hash")}
    finetuned = frozenset({"conll2003"})
    plan = Plan(bilms=TINY.bilms, finetuned=finetuned, transformers=transformers)
    for name, part in PARTS.items():
        if isinstance(part, TrainingPart):
            scored = {run.name for run in part.runs(plan) if run.test}
            others = scored - set(names(plan, "table1"))
            assert all("-bert-" in run for run in others)
            assert (scored == set()) == (name not in ("table1", "robustness", "encoder-tasks"))
    assert "conll2003-tiny-finetune_True-0" in names(plan, "table1")
    assert "conll2003-tiny-0" not in names(plan, "table1")
    assert "sst5-tiny-0" in names(plan, "table1")


def test_quick_plan_has_one_seed_and_few_epochs() -> None:
    plan = Plan(bilms=TINY.bilms, quick=True)
    runs = {
        run.name: run
        for part in PARTS.values()
        if isinstance(part, TrainingPart)
        for run in part.runs(plan)
    }
    assert len(runs) < 25
    assert {run.seed for run in runs.values()} == {0}
    assert {plan.config(run).training.epochs for run in runs.values()} == {2}


def test_plan_has_the_precision_and_the_hash_of_the_models(
    embedder: Embedder, tmp_path: Path
) -> None:
    embedder.save(tmp_path / "first")
    embedder.save(tmp_path / "second")
    source = str(tmp_path / "first")
    bf16 = elmore.load(source, device="cpu", precision="bf16")
    plan = plan_training(source, bf16, compare=[str(tmp_path / "second")])
    assert {bilm.precision for bilm in plan.bilms.values()} == {"bf16"}
    assert list(plan.bilms) == ["first", "second"]
    assert {bilm.weights_hash for bilm in plan.bilms.values()} == {embedder.weights_hash}
    with pytest.raises(InputError, match="several models are called first"):
        plan_training(source, bf16, compare=[source])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"finetuned": frozenset({"snil"})}, "unknown dataset 'snil'; expected any of squad, snli"),
        ({"seeds": 0}, "the number of seeds must be at least 1, got 0"),
        ({"settings": ("training.seed=7",)}, "training.seed cannot be set; use the option seeds"),
        ({"settings": ("elmo.model=x",)}, "elmo.model cannot be set; use the option model"),
        (
            {"bilms": {"baseline": Bilm("x", "h")}},
            "the name baseline is that of several models, or re",
        ),
        (
            {"bilms": {"a b": Bilm("x", "h"), "a_b": Bilm("y", "h")}},
            "the name a_b is that of several models",
        ),
    ],
)
def test_invalid_plans_are_rejected(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan(**{"bilms": TINY.bilms, **arguments})


@pytest.mark.parametrize("change", ["data.language=de", "training.betas=[0.8, 0.9]"])
def test_settings_survive_the_command_line(change: str) -> None:
    plan = Plan(bilms=TINY.bilms, settings=(change,))
    [run, *_] = plan.runs("sick", "tiny")
    assert plan.config(run) == read_task_config("entailment", None, [change])


def test_invalid_settings_are_rejected() -> None:
    plan = Plan(bilms=TINY.bilms, settings=("training.epoch=3",))
    with pytest.raises(InputError, match="did you mean 'epochs'"):
        plan.runs("sick", None)
