"""`elmore reproduce`, end to end. Oracle: the tiny datasets, whose scores are known."""

import json
from pathlib import Path

import pytest

from elmore.embedder import Embedder
from tests.analysis.toy import write_pos, write_wsd
from tests.cli.conftest import assert_rejected


@pytest.fixture
def folder(embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model and data for WSD and POS tagging."""
    embedder.save(tmp_path / "model")
    write_wsd(tmp_path / "data" / "tasks" / "wsd")
    write_pos(tmp_path / "data" / "tasks" / "pos")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reproduce(run, *arguments: str):
    return run("reproduce", "-m", "model", "--data", "data", "-o", "report", *arguments)


def test_tables_and_reasons_are_printed(run, folder: Path) -> None:
    result = reproduce(run, "--only", "intrinsic")
    assert result.code == 0
    assert "| first sense | 20.0 | 100.0 | 0.0 | 0.0 | 0.0 | 0.0 |" in result.out
    assert "| layer 2 | 100.0 | 100.0 |" in result.out
    assert result.out.splitlines()[-1] == "report/report.md"
    assert "wic: not run: data/tasks/wic not found" in result.err
    assert "perplexity: not run: data/corpus not found" in result.err

    again = reproduce(run, "--only", "table6", "--json")
    assert "pos: finished before, skipped" in again.err
    outcomes = json.loads(again.out)
    assert outcomes["records"]["pos"] == json.loads(Path("report/pos.json").read_text())
    assert outcomes["not_run"] == outcomes["failed"] == {}


def test_results_are_printed_before_the_error_of_another_evaluation(run, folder: Path) -> None:
    Path("data/tasks/wsd/index.sense.xz").write_bytes(b"no xz file")
    result = reproduce(run, "--only", "wsd", "pos")
    assert_rejected(result, "no result for wsd; see the messages above")
    assert "wsd: failed: data/tasks/wsd/index.sense.xz, after line 0: damaged .xz" in result.err
    assert "| majority class | 100.0 |" in result.out


def test_tasks_are_trained(run, folder: Path) -> None:
    for name in ("eng.train", "eng.testa", "eng.testb"):
        path = folder / "data" / "tasks" / "ner" / "conll2003" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Ada I-PER\nlived O\nin O\nLondon I-LOC\n\n" * 3)
    options = ["--seeds", "1", "--jobs", "2", "--device", "cpu", "--set", "training.epochs=1"]
    result = reproduce(run, "--only", "table1", *options)
    assert result.code == 0
    assert "squad: not run: data/tasks/squad not found; source: https://" in result.err
    assert "| CoNLL-2003 NER (F1) | 0 | " in result.out
    report = Path("report/report.md").read_text()
    assert "![Relative error reduction by ELMo." in report
    runs = "squad (baseline-training.epochs_1, model-training.epochs_1; seed 0)"
    assert f"- No results for {runs}: not run: " in report
    assert Path("report/report.html").read_text().count("<svg") == 2
    record = json.loads(Path("report/runs/conll2003-model-training.epochs_1-0.json").read_text())
    assert record["metrics"]["elmo"].keys() == {"input"}
    assert record["metrics"]["scores"].keys() == {"dev", "test"}
    assert record["conditions"]["config"]["training"]["epochs"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "table9"], "unknown evaluation 'table9'"),
        (["--only", "table1", "--finetune", "snil"], "unknown dataset 'snil'"),
        (["--only", "table1", "--datasets", "snil"], "unknown dataset 'snil'"),
        (
            ["--only", "figure1", "wsd", "--quick", "--datasets", "sick"],
            "the selected evaluations do not train on sick in a quick run; they train on snli",
        ),
        (
            ["--only", "wsd", "--datasets", "sick"],
            "datasets can only be selected for evaluations with training",
        ),
        (
            ["--only", "table1", "--set", "training.seed=7"],
            "training.seed cannot be set; use the option seeds",
        ),
        (["--only", "table1", "--vectors", "none.txt"], "none.txt: no such file of word vectors"),
        (["--only", "table1", "--options", "x.json"], "training does not accept --options"),
        (["--only", "table1", "--minutes", "0"], "minutes must be positive, got 0.0"),
        (["--only", "wic", "scws"], "nothing was measured; see the messages above"),
        (["--only", "pairs"], "name it with the pairs option"),
        (["--text", "none.txt"], "none.txt: no such file"),
        (["--data", "none"], "none: no such folder"),
        (["--model", "none"], "none: no such model"),
        (["--output", "model/config.json"], "model/config.json"),
    ],
)
def test_invalid_input_is_rejected(run, folder: Path, arguments: list[str], message: str) -> None:
    defaults = {"--model": "model", "--data": "data", "--output": "report"}
    options = [word for name in defaults.keys() - {arguments[0]} for word in (name, defaults[name])]
    assert_rejected(run("reproduce", *options, *arguments), message)
