"""The report in `docs/results`. Oracle: the records of the training runs, averaged by NumPy."""

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from elmore.analysis.training.datasets import DATASETS
from elmore.tasks import get_task
from tests.test_docs import ROOT

REPORT = ROOT / "docs" / "results"
RUNS = {path.stem: json.loads(path.read_text()) for path in sorted(REPORT.glob("runs/*.json"))}


def scores_by_cell(split: str) -> dict[tuple[str, str], list[float]]:
    """Return the scores of Table 1 in percent, by dataset and column."""
    scores = defaultdict(list)
    for record in RUNS.values():
        run, metrics = record["run"], record["metrics"]
        if run["test"] and not run["settings"]:
            column = f"+ ELMo ({run['bilm']})" if run["bilm"] else "baseline"
            score = metrics["scores"][split][get_task(metrics["task"]).score_name]
            scores[DATASETS[run["dataset"]].heading, column].append(100 * score)
    return scores


@pytest.mark.parametrize("name", RUNS)
def test_run_is_complete_and_has_its_conditions(name: str) -> None:
    record: dict[str, Any] = RUNS[name]
    conditions = record["conditions"]
    assert not record["metrics"]["cut_short"]
    assert not conditions["quick"]
    assert len(record["dev_scores"]) == record["metrics"]["epochs"]
    assert conditions["config"]["training"]["seed"] == record["run"]["seed"]
    assert conditions["hardware"]
    assert conditions["data"]


def test_all_runs_are_of_one_commit_and_read_the_same_data() -> None:
    conditions = [record["conditions"] for record in RUNS.values()]
    assert len({c["commit"] for c in conditions}) == 1
    assert len(conditions[0]["commit"]) == 40  # not "-dirty"
    checksums = defaultdict(set)
    for c in conditions:
        for file, checksum in {**c["data"], **c["vectors"]}.items():
            checksums[file].add(checksum)
    assert {len(values) for values in checksums.values()} == {1}


def test_table1_has_the_scores_of_all_runs() -> None:
    table = json.loads((REPORT / "table1.json").read_text())["scores"]
    cells = {
        (row, column): scores
        for row, columns in table.items()
        for column, scores in columns.items()
        if column == "baseline" or column.startswith("+ ELMo")
        if scores
    }
    assert cells == scores_by_cell("test")


def test_report_shows_means_and_standard_deviations() -> None:
    lines = (REPORT / "report.md").read_text().splitlines()
    for (row, _), scores in scores_by_cell("test").items():
        [line] = [line for line in lines if line.startswith(f"| {row} |")]
        assert f"| {np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f} |" in line
