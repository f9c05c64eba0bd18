"""Robustness. Oracles: results set by hand; the files that a trainer is given."""

from dataclasses import replace
from pathlib import Path

import pytest

from elmore.analysis.robustness import measure_robustness, plot_robustness, robustness_runs
from elmore.analysis.training import train as module
from elmore.analysis.training.train import Resources, train_missing
from tests.analysis.training.fake import TINY, fake_command, result, write_data

PLAN = replace(TINY, seeds=2)
NAMES = [f"{kind}-{n}" for kind in ("typos", "case", "unseen_words") for n in (5, 10)]


def noisy(test: float, *disturbed: float):
    return result(95, test)._replace(disturbed=dict(zip(NAMES, disturbed, strict=False)))


RESULTS = {
    "conll2003-baseline-0": noisy(90, 80, 70, 85, 80, 88, 86),
    "conll2003-baseline-1": noisy(92, 82, 74, 85, 80, 88, 86),
    "conll2003-tiny-0": noisy(95, 90, 85, 86, 75, 91, 90),
    "conll2003-tiny-1": noisy(94, 89, 85.5, 85, 73, 91, 89),
}


def test_scores_by_kind_and_share() -> None:
    scores, _, findings, [note] = measure_robustness(PLAN, RESULTS)
    assert list(scores) == [
        "as it is",
        *(f"{kind}, {n} %" for kind in ("typos", "case", "unseen words") for n in (5, 10)),
    ]
    assert scores["typos, 10 %"] == {
        "baseline": [70, 74],
        "+ ELMo (tiny)": [85, 85.5],
        "relative error reduction, %": pytest.approx([50, 100 * 11.5 / 26]),
    }
    assert scores["as it is"]["+ ELMo (tiny)"] == [95, 94]
    assert "character CNN" in note
    claim = "NER loses less F1 with ELMo"
    assert list(findings) == [
        f"With 10 % noise (typos), {claim}: confirmed (+9.75; 95 % interval 6.57 to 12.93, 2 pairs "
        "of runs).",
        f"With 10 % noise (case), {claim}: refuted (-9.50; 95 % interval -15.85 to -3.15, 2 pairs "
        "of runs).",
        f"With 10 % noise (unseen words), {claim}: undecided (+0.00; 95 % interval -12.71 to "
        "12.71, 2 pairs of runs).",
    ]


def test_plot_has_a_panel_for_each_kind() -> None:
    [plot] = plot_robustness(PLAN, RESULTS)
    texts = ("typos", "case", "unseen words", "test F1 (%)", "letters disturbed (%)", "+ ELMo")
    assert all(text in plot.svg for text in texts)
    assert plot_robustness(PLAN, {}) == []


def test_runs_are_those_of_table_1_and_score_disturbed_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, given = tmp_path / "data", []
    write_data(data, "conll2003")

    def command(plan, run, files, folder, resources, *, resume):
        given.append([path.read_text() for path in files.disturbed])
        return fake_command(plan, run, files, folder, resources, resume=resume)

    monkeypatch.setattr(module, "train_command", command)
    plan = replace(PLAN, seeds=1)
    [table1, *_] = plan.table1_runs("conll2003", None)
    [baseline, elmo] = robustness_runs(plan)
    assert baseline == replace(table1, disturbed=True)
    assert elmo.bilm == "tiny"

    def train(*runs):
        trained = train_missing(plan, runs, data, tmp_path / "out", Resources(device="cpu"))
        assert trained.problems == {}
        return trained.results[baseline.name].disturbed

    assert train(table1) == {}
    assert given == [[]]
    assert train(table1, baseline) == dict.fromkeys(NAMES, pytest.approx(40))
    copies = given[-1]
    assert len(set(copies)) == len(NAMES)
    assert all(copy.count(" O\n") == 20 for copy in copies)
    assert train(baseline) == train(table1)
    assert len(given) == 2
