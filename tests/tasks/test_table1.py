"""Table 1. Oracles: the relative error reductions in the paper; results written by hand."""

import json
import os
import runpy
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from elmore.tasks import get_task

PAPER_ROWS = {"squad", "snli", "srl", "coref", "conll2003", "sst5"}
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
def test_error_reduction_equals_the_paper(table1: dict, row: str, percent: float) -> None:
    _, before, after = table1["PAPER"][row]
    actual = table1["Row"](row, [before], [after]).error_reduction
    assert actual == pytest.approx(percent, abs=0.1)


def test_runs_are_grouped_into_rows(table1: dict, tmp_path: Path) -> None:
    for name, test, dev in (
        ("conll2003-baseline-0", 0.90, 0.95),
        ("conll2003-baseline-1", 0.91, 0.95),
        ("conll2003-elmo-0", 0.924, 0.96),
        ("wnut-elmo-0", 0.5, 0.5),  # no baseline yet
    ):
        scores = {"test": {"f1": test}, "dev": {"f1": dev}}
        (tmp_path / name).mkdir()
        summary = json.dumps(
            {"task": "ner", "scores": scores, "cut_short": name == "conll2003-baseline-1"}
        )
        (tmp_path / name / "metrics.json").write_text(summary)
    [row] = table1["read_rows"](tmp_path)
    assert row == ("conll2003", pytest.approx([90, 91]), pytest.approx([92.4]), 1)
    assert row.error_reduction == pytest.approx(100 * 1.9 / 9.5)
    last = table1["table"]([row]).splitlines()[-1]
    ours, paper = "90.50 +- 0.71 | 92.40 | 20.0 %", "the same | 90.15 | 92.22"
    assert last.startswith(f"| conll2003 | 2, 1 (1 cut short) | {ours} | {paper} |")


def test_dev_scores_are_marked_and_kept_apart(table1: dict, tmp_path: Path) -> None:
    for name, scores in (
        ("wnut-baseline-0", {"dev": {"f1": 0.4}}),
        ("wnut-elmo-0", {"dev": {"f1": 0.5}}),
        ("wnut-elmo-1", {"dev": {"f1": 0.5}, "test": {"f1": 0.3}}),
    ):
        (tmp_path / name).mkdir()
        summary = {"task": "ner", "scores": scores, "cut_short": False}
        (tmp_path / name / "metrics.json").write_text(json.dumps(summary))
    assert table1["read_rows"](tmp_path) == [
        ("wnut (dev)", pytest.approx([40]), pytest.approx([50]), 0)
    ]


def test_plot_has_one_panel_per_row_and_one_line_per_run(
    table1: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the numbers in the files. An incomplete run has no line."""
    rows = ["coref", "snli", "srl", "squad", "sst5"]
    tasks = ["coref", "entailment", "srl", "qa", "sentiment"]
    for row, task in zip(rows, tasks, strict=True):
        score = get_task(task).score_name
        for kind, complete in (("elmo", True), ("baseline", row != "sst5")):
            folder = tmp_path / f"{row}-{kind}-0"
            folder.mkdir()
            lines = [json.dumps({"dev": {score: s, "other": 0}}) for s in (0.25, 0.5)]
            (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
            if complete:
                (folder / "metrics.json").write_text(json.dumps({"task": task}))
    figures = []
    write = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *a, **k: (figures.append(figure), write(figure, *a, **k))
    )

    table1["plot"](tmp_path, tmp_path / "curves.png")

    [figure] = figures
    shown = {axes.get_title().split()[0]: axes.lines for axes in figure.axes if axes.axison}
    assert {name: len(lines) for name, lines in shown.items()} == {
        "coref": 2, "snli": 2, "srl": 2, "squad": 2, "sst5": 1,
    }  # fmt: skip
    for lines in shown.values():
        assert [line.get_ydata().tolist() for line in lines] == [[25.0, 50.0]] * len(lines)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="no complete run"):
        table1["plot"](tmp_path / "sst5-elmo-0", tmp_path / "none.png")


def test_snli_dev_set_is_split_without_unlabeled_pairs(tmp_path: Path) -> None:
    split_dev = runpy.run_path(str(SCRIPT.with_name("snli_protocol.py")))["split_dev"]
    labels = ["-", *["neutral"] * 3, "-", *["entailment"] * 1000]
    lines = [json.dumps({"gold_label": label, "n": n}) for n, label in enumerate(labels)]
    (tmp_path / "dev.jsonl").write_text("\n".join(lines) + "\n")
    split_dev(tmp_path / "dev.jsonl", tmp_path / "parts")
    assert (tmp_path / "parts" / "learned.jsonl").read_text().splitlines() == lines[1:4]
    assert (tmp_path / "parts" / "held_out.jsonl").read_text().splitlines() == lines[5:]


@pytest.fixture
def run_table1(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return runpy.run_path(str(SCRIPT.with_name("run_table1.py")))


def test_first_seed_covers_every_row_of_the_table(run_table1: dict) -> None:
    names = [run.name for run in run_table1["plan"](["wnut17", "squad"], 2)]
    assert names[:4] == ["squad-elmo-0", "squad-baseline-0", "wnut17-elmo-0", "wnut17-baseline-0"]
    assert names[4:] == ["wnut17-elmo-1", "wnut17-baseline-1"]  # large datasets have one seed
    minutes = [row.minutes for row in run_table1["ROWS"].values()]
    assert minutes == sorted(minutes, reverse=True)
    assert run_table1["ROWS"].keys() >= PAPER_ROWS


def test_complete_runs_are_not_repeated(
    run_table1: dict, conll: Path, model: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    row = run_table1["ROWS"]["wnut17"]
    for name in (row.train, row.dev, row.test):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(conll.read_text())
    options = [tmp_path / "data", "-o", tmp_path / "runs", "--model", model, "--rows", "wnut17"]
    options += ["--seeds", 1, "--jobs", 2, "--device", "cpu", "--set", "training.epochs=1"]
    args = run_table1["parse_args"](list(map(str, options)))
    run_table1["run_all"](args, dict(os.environ))
    out = capfd.readouterr().out
    assert sorted(line.split(":")[0] for line in out.splitlines()) == [
        "wnut17-baseline-0",
        "wnut17-elmo-0",
    ]
    assert "1 epochs in" in out
    assert "| wnut17 | 1, 1 |" in (tmp_path / "runs" / "table1.md").read_text()
    run_table1["run_all"](args, dict(os.environ))  # nothing left to do
    assert not capfd.readouterr().out


def test_failed_run_is_retried_once(
    run_table1: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture,
) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('no memory')"]
    monkeypatch.setitem(run_table1["run_all"].__globals__, "command", lambda *_: failing)
    options = [str(tmp_path), "-o", str(tmp_path / "runs"), "--rows", "sick", "--seeds", "1"]
    run_table1["run_all"](run_table1["parse_args"](options), dict(os.environ))
    lines = capfd.readouterr().out.splitlines()
    names = ["sick-baseline-0", "sick-elmo-0"]
    assert sorted(lines) == [f"{n}: failed with code 1: no memory" for n in names for _ in range(2)]
