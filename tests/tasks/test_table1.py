"""Oracle: the error reductions that the paper gives for its own scores."""

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "table1.py"


@pytest.fixture(scope="module")
def table1() -> dict:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("row", "percent"),
    [
        ("squad", 24.9),
        ("snli", 5.8),
        ("srl", 17.2),
        ("coref", 9.8),
        ("conll2003", 21),
        ("sst5", 6.8),
    ],
)
def test_error_reduction_is_the_papers(table1: dict, row: str, percent: float) -> None:
    before, after = table1["PAPER"][row]
    found = table1["Row"](row, [before], [after]).error_reduction
    assert found == pytest.approx(percent, abs=0.1)


def test_runs_become_rows(table1: dict, tmp_path: Path) -> None:
    for name, test, dev in (
        ("conll2003-baseline-0", 0.90, 0.95),
        ("conll2003-baseline-1", 0.91, 0.95),
        ("conll2003-elmo-0", 0.924, 0.96),
        ("wnut-elmo-0", 0.5, 0.5),  # no baseline yet
    ):
        scores = {"test": {"f1": test}, "dev": {"f1": dev}}
        (tmp_path / name).mkdir()
        summary = json.dumps({"task": "ner", "scores": scores})
        (tmp_path / name / "metrics.json").write_text(summary)
    [row] = table1["read_rows"](tmp_path)
    assert row == ("conll2003", pytest.approx([90, 91]), pytest.approx([92.4]))
    assert row.error_reduction == pytest.approx(100 * 1.9 / 9.5)
    last = table1["table"]([row]).splitlines()[-1]
    assert last.startswith("| conll2003 | 2, 1 | 90.50 +- 0.71 | 92.40 | 20.0 % | 90.15 | 92.22 |")
