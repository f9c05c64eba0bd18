"""Tables 1 to 3 and fine-tuning. Oracles: the paper's error reductions; results set by hand."""

from dataclasses import replace
from typing import Any

import pytest

from elmore.analysis import table1
from elmore.analysis.finetuning import measure_finetuning
from elmore.analysis.table1 import error_reduction, measure_table1, plot_table1
from elmore.analysis.table2 import measure_table2
from elmore.analysis.table3 import measure_table3
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Bilm, RunResult
from tests.analysis.training.fake import TINY, result

PLAN = replace(TINY, seeds=2)


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("squad", 24.9),
        ("snli", 5.8),
        ("srl", 17.2),
        ("coref", 9.8),
        ("conll2003", 21),
        ("sst5", 6.8),
    ],
)
def test_error_reduction_equals_the_paper(name: str, percent: float) -> None:
    published = DATASETS[name].published
    assert published is not None
    actual = error_reduction(published.baseline, published.elmo)
    assert actual == pytest.approx(percent, abs=0.1)


def test_table1_has_the_scores_of_all_seeds_beside_the_paper() -> None:
    results = {
        "conll2003-baseline-0": result(95, test=90),
        "conll2003-baseline-1": result(95, test=91),
        "conll2003-tiny-0": result(96, test=92),
        "conll2003-tiny-1": result(96, test=91.9),
        "wnut17-tiny-0": result(50, test=40),
        "sick-tiny-0": result(50),  # without a test score
    }
    scores, _, [found], notes = measure_table1(PLAN, results)
    assert list(scores) == ["CoNLL-2003 NER (F1)", "WNUT-17 NER (F1)"]
    assert scores["CoNLL-2003 NER (F1)"] == {
        "seeds": "0, 1",
        "baseline": [90, 91],
        "+ ELMo (tiny)": [92, 91.9],
        "relative error reduction (tiny), %": pytest.approx([20, 10]),
        "paper: data": "the same",
        "paper: baseline": "90.15",
        "paper: + ELMo": "92.22",
        "paper: relative error reduction, %": "21.0",
    }
    assert scores["WNUT-17 NER (F1)"] == {
        "seeds": "baseline: none; tiny: 0",
        "baseline": [],
        "+ ELMo (tiny)": [40],
        "relative error reduction (tiny), %": [],
    }
    assert notes == (
        "The biLM was not fine-tuned on the text of the tasks; in the paper, it was in most cases "
        "(section 3.4).",
    )
    assert found == (
        "CoNLL-2003 NER: the relative error reduction is 15.0 % (95 % interval -48.53 to 78.53, "
        "2 pairs of runs), consistent with the paper's 21.0 %."
    )


def test_table1_has_no_verdict_on_other_data() -> None:
    """Oracle: the paper's coreference data are OntoNotes."""
    results = {"coref-baseline-0": result(50, test=50), "coref-tiny-0": result(60, test=60)}
    assert measure_table1(PLAN, results).findings == (
        "OntoGUM coreference: the relative error reduction is 20.0 % (1 pair of runs). "
        "The paper's 9.8 % is on other data, OntoNotes.",
    )


def test_table1_compares_with_the_paper_by_the_confidence_interval() -> None:
    """Oracle: a reduction of 50 or 10 % in all seeds, and 21 % in the paper."""
    for reduction, relation in ((50, "above"), (10, "below")):
        results = {
            f"conll2003-{name}-{seed}": result(90, test=test)
            for seed in (0, 1)
            for name, test in (("baseline", 90), ("tiny", 90 + reduction / 10))
        }
        [found] = measure_table1(PLAN, results).findings
        assert f"2 pairs of runs), {relation} the paper's 21.0 %." in found


def test_baseline_without_errors_has_no_error_reduction() -> None:
    results = {"coref-baseline-0": result(99, test=100), "coref-tiny-0": result(99, test=100)}
    [row] = measure_table1(PLAN, results).scores.values()
    assert row["relative error reduction (tiny), %"] == []


@pytest.mark.parametrize(
    ("baseline", "elmo", "expected"),
    [
        ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), "0 to 4"),
        ((1, 2), (0, 1, 2), "baseline: 1, 2; tiny: 0 to 2"),
        ((0, 1), (0, 2), "baseline: 0, 1; tiny: 0, 2"),
        ((0, 1, 3), (0, 1, 3), "0, 1, 3"),
    ],
)
def test_table1_shows_the_seeds(
    baseline: tuple[int, ...], elmo: tuple[int, ...], expected: str
) -> None:
    names = [f"conll2003-baseline-{n}" for n in baseline] + [f"conll2003-tiny-{n}" for n in elmo]
    plan = replace(PLAN, seeds=5)
    scores = measure_table1(plan, {name: result(90, test=90) for name in names}).scores
    assert scores["CoNLL-2003 NER (F1)"]["seeds"] == expected


def test_table1_states_fine_tuning() -> None:
    plan = replace(PLAN, finetuned=frozenset({"squad"}))
    scores, _, _, notes = measure_table1(plan, {"squad-tiny-finetune_True-1": result(80, test=79)})
    assert scores["SQuAD 1.1 (F1)"]["+ ELMo (tiny)"] == [79]
    assert notes == ("The biLM was fine-tuned on the training text of SQuAD 1.1 (section 3.4).",)


def limits_of_curves(curve: list[float], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the limits of the axis of dev scores, given the curve of a run."""
    figures = []
    monkeypatch.setattr(table1, "to_plot", lambda figure, name, _: figures.append((name, figure)))
    plot_table1(PLAN, {"squad-tiny-0": result(max(curve), curve=curve)})
    panel = dict(figures)["table1-curves"].axes[0]
    assert all(tick == round(tick) for tick in panel.get_xticks())
    return panel.get_ylim()


def test_curves_show_all_scores_of_short_runs_and_none_below_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    low, high = limits_of_curves([2.0, 10.0], monkeypatch)
    assert 0 <= low < 2 < 10 < high
    low, _ = limits_of_curves([0.0, 0.0], monkeypatch)
    assert low == 0
    low, _ = limits_of_curves([2.0, 10.0, 60.0, 70.0, 71.0], monkeypatch)
    assert 60 < low < 71


def test_table1_has_a_column_for_each_model() -> None:
    plan = replace(PLAN, bilms={**TINY.bilms, "large": Bilm("large", "hash")})
    results = {
        "sick-baseline-0": result(0, test=50),
        "sick-tiny-0": result(0, test=60),
        "sick-large-0": result(0, test=75),
    }
    row = measure_table1(plan, results).scores["SICK (accuracy)"]
    assert row["relative error reduction (tiny), %"] == [20]
    assert row["relative error reduction (large), %"] == [50]
    [reductions, curves] = plot_table1(plan, results)
    assert "ELMo (large)" in reductions.svg
    assert "SICK (accuracy)" in curves.svg


def test_table1_without_results_has_no_plots() -> None:
    assert plot_table1(PLAN, {}) == []


def variants(**scores: list[float]) -> dict[str, RunResult]:
    """Return results of SRL, by the name of the variant and by seed."""
    return {
        f"srl-{name}-{seed}": result(score)
        for name, of_name in scores.items()
        for seed, score in enumerate(of_name)
    }


def test_table2_compares_all_layers_with_the_last() -> None:
    results = variants(
        baseline=[80, 80],
        tiny=[83, 85.1],
        **{"tiny-layers_top": [81, 83], "tiny-penalty_1.0": [82]},
    )
    scores, _, findings, _ = measure_table2(PLAN, results)
    assert scores == {
        "baseline": {"EWT SRL (F1)": [80, 80], "EWT SRL, paper": "81.6"},
        "last layer only": {
            "EWT SRL (F1)": [81, 83], "EWT SRL, paper": "84.1",
        },
        "all layers, lambda = 1": {
            "EWT SRL (F1)": [82], "EWT SRL, paper": "84.6",
        },
        "all layers, lambda = 0.001": {
            "EWT SRL (F1)": [83, 85.1], "EWT SRL, paper": "84.8",
        },
    }  # fmt: skip
    better = "are better than the last one"
    assert list(findings) == [
        f"EWT SRL: all layers (lambda = 1) {better}: undecided (+1.00; 1 pair of runs).",
        f"EWT SRL: all layers (lambda = 0.001) {better}: confirmed (+2.05; 95 % interval 1.41 to "
        "2.69, 2 pairs of runs).",
    ]


def test_tables_show_the_paper_beside_missing_scores_but_no_baseline_alone() -> None:
    results = {"srl-tiny-0": result(83), "squad-baseline-0": result(79)}
    assert measure_table2(PLAN, results).scores == {
        "baseline": {"EWT SRL (F1)": [], "EWT SRL, paper": "81.6"},
        "last layer only": {"EWT SRL (F1)": [], "EWT SRL, paper": "84.1"},
        "all layers, lambda = 1": {"EWT SRL (F1)": [], "EWT SRL, paper": "84.6"},
        "all layers, lambda = 0.001": {"EWT SRL (F1)": [83], "EWT SRL, paper": "84.8"},
    }
    assert measure_table2(PLAN, {"squad-baseline-0": result(79)}).scores == {}


def test_tables_compare_runs_with_the_same_seed() -> None:
    """The mean over all seeds, 79 and 75, would favor all layers."""
    results = variants(**{"tiny-layers_top": [70, 80]}) | {"srl-tiny-1": result(79)}
    [found] = measure_table2(PLAN, results).findings
    assert found.endswith("undecided (-1.00; 1 pair of runs).")


@pytest.mark.parametrize(
    ("both", "verdict"),
    [([81.0, 80.0], "confirmed (+1.00"), ([83.5, 82.6], "refuted (-1.55"), ([83.5], "undecided")],
)
def test_table3_compares_positions(both: list[float], verdict: str) -> None:
    results = variants(tiny=[82, 81], **{"tiny-place_both": both, "tiny-place_output": [80, 80]})
    scores, _, [found], _ = measure_table3(PLAN, results)
    assert [row["EWT SRL (F1)"] for row in scores.values()] == [[82, 81], both, [80, 80]]
    assert found.startswith(
        f"EWT SRL: input only is better than the best other of each seed: {verdict}"
    )


def test_table3_compares_sick_with_snli_in_the_paper() -> None:
    """Oracle: Table 3 of the paper, where input and output is best on SNLI."""
    results = {
        "sick-tiny-place_input-0": result(84),
        "sick-tiny-0": result(85),  # at both positions by default
        "sick-tiny-place_output-0": result(82),
    }
    scores, _, [found], _ = measure_table3(PLAN, results)
    assert [row["SICK (accuracy)"] for row in scores.values()] == [[84], [85], [82]]
    assert not any("SICK, paper" in row for row in scores.values())
    assert found == (
        "SICK: input and output is better than the best other of each seed, as on SNLI in the "
        "paper: undecided (+1.00; 1 pair of runs)."
    )


def test_incomplete_comparisons_have_no_verdict() -> None:
    assert measure_table2(PLAN, variants(tiny=[83])).findings == ()
    assert measure_table3(PLAN, variants(tiny=[83])).findings == ()


def test_finetuning_shows_perplexity_and_effect() -> None:
    results = {
        "sst5-tiny-0": result(50),
        "sst5-tiny-1": result(51),
        "sst5-tiny-finetune_True-0": result(52, perplexity=(200, 100)),
        "coref-tiny-finetune_True-0": result(60, perplexity=(90, 80)),
        "squad-tiny-0": result(84),
    }
    scores, _, findings, _ = measure_finetuning(PLAN, results)
    assert scores == {
        "OntoGUM coreference (average F1)": {
            "perplexity before": [90], "perplexity after": [80],
            "dev score, biLM as it is": [], "dev score, biLM fine-tuned": [60], "gain": [],
        },
        "SST-5 (accuracy)": {
            "perplexity before": [200], "perplexity after": [100],
            "paper: before": "131.5", "paper: after": "78.6",
            "dev score, biLM as it is": [50], "dev score, biLM fine-tuned": [52], "gain": [2],
        },
    }  # fmt: skip
    assert findings == ("Fine-tuning helps on SST-5: undecided (+2.00; 1 pair of runs).",)
