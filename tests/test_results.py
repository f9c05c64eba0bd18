"""The report in `docs/results`. Oracle: the records of the training runs, averaged by NumPy."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.noise import NOISES
from elmore.tasks import get_task
from tests.test_docs import ROOT

REPORT = ROOT / "docs" / "results"
MODEL = "en-large"
RUNS = {path.stem: json.loads(path.read_text()) for path in sorted(REPORT.glob("runs/*.json"))}
REDUCTION = f"relative error reduction ({MODEL}), %"

Scores = dict[int, float]  # by seed


def scores_by_cell(split: str) -> dict[tuple[str, str], Scores]:
    """Return the scores in percent, by dataset and column of Table 1."""
    scores: defaultdict[tuple[str, str], Scores] = defaultdict(dict)
    for record in RUNS.values():
        run, metrics = record["run"], record["metrics"]
        score = get_task(metrics["task"]).score_name
        if split in metrics["scores"] and run["bilm"] in (None, MODEL):
            column = f"+ ELMo ({MODEL})" if run["bilm"] else "baseline"
            value = 100 * metrics["scores"][split][score]
            scores[DATASETS[run["dataset"]].heading, column][run["seed"]] = value
    return scores


def reductions(before: Scores, after: Scores) -> list[float]:
    seeds = sorted(before.keys() & after.keys())
    return [100 * (after[s] - before[s]) / (100 - before[s]) for s in seeds]


def shown(values: list[float], decimals: int = 2) -> str:
    """Return the mean and, of several values, the standard deviation."""
    mean = f"{np.mean(values):.{decimals}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{decimals}f}" if len(values) > 1 else mean


def rows_of(title: str) -> dict[str, dict[str, str]]:
    """Return the cells of the table in a section of the report, by row and column."""
    text = (REPORT / "report.md").read_text()
    [section] = [part for part in text.split("\n## ") if part.startswith(title)]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def test_there_are_records() -> None:
    assert len(RUNS) >= 44


@pytest.mark.parametrize("name", RUNS)
def test_run_is_complete_and_has_its_conditions(name: str) -> None:
    record: dict[str, Any] = RUNS[name]
    conditions = record["conditions"]
    assert not record["metrics"]["cut_short"]
    assert not conditions["quick"]
    assert len(record["dev_scores"]) == record["metrics"]["epochs"]
    assert conditions["config"]["training"]["seed"] == record["run"]["seed"]
    assert conditions["hardware"].startswith(("NVIDIA H200", "x86_64 CPU"))
    assert conditions["data"]


def test_runs_of_table1_are_of_clean_commits() -> None:
    """The commits are those of docs/results.md."""
    names = json.loads((REPORT / "table1.json").read_text())["runs"]
    commits = Counter(RUNS[name]["conditions"]["commit"] for name in names)
    assert {len(commit) for commit in commits} == {40}  # not "-dirty"
    short = {commit[:7]: count for commit, count in commits.items()}
    assert short == {"3dbd82b": 41, "6895692": 6, "4a73759": 9}
    conditions = [RUNS[name]["conditions"] for name in names]
    assert len({(c["torch"], c["elmore"], c["hardware"]) for c in conditions}) == 1
    assert len({c["weights_hash"] for c in conditions}) == 2  # None for baselines


def test_all_runs_read_the_same_data() -> None:
    conditions = [record["conditions"] for record in RUNS.values()]
    checksums = defaultdict(set)
    for c in conditions:
        for file, checksum in {**c["data"], **c["vectors"]}.items():
            checksums[file].add(checksum)
    assert {len(values) for values in checksums.values()} == {1}


def test_table1_has_the_scores_of_all_runs() -> None:
    table = json.loads((REPORT / "table1.json").read_text())["scores"]
    for (row, column), scores in scores_by_cell("test").items():
        assert table[row][column] == [scores[seed] for seed in sorted(scores)]


def test_report_shows_the_means_of_table1() -> None:
    rows, scores = rows_of("Table 1"), scores_by_cell("test")
    assert rows.keys() == {row for row, _ in scores}
    for row, cells in rows.items():
        before, after = scores[row, "baseline"], scores[row, f"+ ELMo ({MODEL})"]
        assert cells["baseline"] == shown([*before.values()])
        assert cells[f"+ ELMo ({MODEL})"] == shown([*after.values()])
        assert cells[REDUCTION] == shown(reductions(before, after))


@pytest.mark.parametrize("path", sorted(REPORT.glob("*.json")), ids=lambda path: path.stem)
def test_report_shows_the_scores_of_each_evaluation(path: Path) -> None:
    record = json.loads(path.read_text())
    rows = rows_of(record["title"])
    assert rows.keys() == record["scores"].keys()
    for row, cells in record["scores"].items():
        for column, value in cells.items():
            text = rows[row][column]
            if isinstance(value, str):
                assert text == value
            elif not isinstance(value, list):
                decimals = len(text.partition(".")[2])
                assert decimals == record["decimals"]
                assert float(text) == pytest.approx(value, abs=0.51 * 10**-decimals)
            else:
                assert text == (shown(value, record["decimals"]) if value else "")


def test_report_shows_the_means_of_robustness() -> None:
    files = {"as it is": "test"} | {
        f"{noise.kind}, {noise.percent} %": f"{noise.name}.conll" for noise in NOISES
    }
    rows = rows_of("Robustness")
    assert rows.keys() == files.keys()
    heading = DATASETS["conll2003"].heading
    for row, split in files.items():
        scores = scores_by_cell(split)
        before, after = scores[heading, "baseline"], scores[heading, f"+ ELMo ({MODEL})"]
        assert rows[row]["baseline"] == shown([*before.values()])
        assert rows[row][f"+ ELMo ({MODEL})"] == shown([*after.values()])
        assert rows[row]["relative error reduction, %"] == shown(reductions(before, after))
