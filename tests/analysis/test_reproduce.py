"""Evaluations in one run. Oracles: tiny datasets with known scores; calls counted by the test."""

import json
import lzma
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import elmore
from elmore.analysis import parts as module
from elmore.analysis.evaluation import Model, Part
from elmore.analysis.parts import GROUPS, PARTS, select_parts
from elmore.analysis.reproduce import Training, reproduce
from elmore.analysis.results import Result
from elmore.analysis.training import train
from elmore.analysis.training.datasets import DATASETS
from elmore.analysis.training.run import Bilm, Plan
from elmore.analysis.training.train import Resources
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.language_model import read_language_model
from elmore.embedder import Embedder
from elmore.errors import InputError, MissingExtraError
from elmore.training.run_folder import hardware_name
from tests.analysis.toy import VOCABULARY, uniform_softmax, write_pos, write_wsd
from tests.analysis.training.fake import TINY, fake_command, write_data


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A model with a uniform softmax."""
    path = tmp_path / "model"
    softmax = uniform_softmax(BiLMConfig.tiny().dim)
    write_directory(BiLM(BiLMConfig.tiny()), path, softmax=softmax, vocabulary=VOCABULARY)
    return Model("tiny", elmore.load(path, device="cpu"), partial(read_language_model, path))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Data of three evaluations; WiC and SCWS are missing."""
    folder = tmp_path / "data"
    write_wsd(folder / "tasks" / "wsd")
    write_pos(folder / "tasks" / "pos")
    (folder / "corpus").mkdir()
    (folder / "corpus" / "valid.txt.xz").write_bytes(lzma.compress(b"The bank.\n"))
    return folder


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_scores_and_conditions_are_written(model: Model, data: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    outcomes = reproduce(
        model, select_parts(["intrinsic"]), data, tmp_path / "out", show=messages.append
    )
    records = {name: read(tmp_path / "out" / f"{name}.json") for name in outcomes.records}
    assert records == outcomes.records
    assert list(records) == ["perplexity", "wsd", "pos"]
    perplexity = records["perplexity"]["scores"]["perplexity"]
    assert perplexity["average"] == pytest.approx(len(VOCABULARY))
    assert records["wsd"]["scores"]["first sense"]["ALL"] == 20
    paper = {"paper: Penn Treebank": "97.3"}
    assert records["pos"]["scores"]["layer 1"] == {"accuracy": 100, "shuffled tags": 100} | paper
    conditions = records["pos"]["conditions"]
    assert conditions["model"] == "tiny"
    assert conditions["weights_hash"] == model.embedder.weights_hash
    assert conditions["elmore"] == elmore.__version__
    assert conditions["precision"] == "fp32"
    assert conditions["seconds"] >= 0
    assert list(conditions["data"]) == [
        f"tasks/pos/en-{name}.conllu" for name in ("train", "dev", "test")
    ]
    assert outcomes.failed == {}
    assert outcomes.not_run == {
        name: f"{data / 'tasks' / name} not found; source: {PARTS[name].source}"
        for name in ("wic", "scws")
    }
    assert f"wic: not run: {outcomes.not_run['wic']}" in messages


def test_report_has_the_tables_and_what_was_not_run(
    model: Model, data: Path, tmp_path: Path
) -> None:
    reproduce(model, select_parts(), data, tmp_path / "out")
    lines = (tmp_path / "out" / "report.md").read_text().splitlines()
    assert lines[0] == "# Evaluation of the model tiny"
    assert "| perplexity | 5.00 | 5.00 | 5.00 |" in lines
    assert "| first sense | 20.0 | 100.0 | 0.0 | 0.0 | 0.0 | 0.0 | 65.9 |" in lines
    assert "| majority class | 100.0 |  |  |" in lines
    reason = f"{data / 'tasks' / 'scws'} not found; source: {PARTS['scws'].source}"
    assert f"- scws (not run): {reason}" in lines


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace all evaluations by ones that append their name to the returned list."""
    calls: list[str] = []

    def counted(name: str, part: Part) -> Part:
        def measure(model: Model, files: Sequence[Path]) -> Result:
            calls.append(name)
            return Result({"row": {"score": float(len(calls))}}, {})

        return replace(part, measure=measure)

    monkeypatch.setattr(module, "PARTS", {name: counted(name, p) for name, p in PARTS.items()})
    return calls


def test_finished_evaluations_are_skipped_until_something_changes(
    model: Model, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(monkeypatch)

    def run(**changes) -> list[str]:
        calls.clear()
        reproduce(model._replace(**changes), select_parts(["wsd", "pos"]), data, tmp_path / "out")
        return calls

    assert run() == ["wsd", "pos"]
    assert run() == []
    assert run(name="another name") == []
    (tmp_path / "out" / "wsd.json").unlink()
    assert run() == ["wsd"]
    dev = data / "tasks" / "pos" / "en-dev.conllu"
    dev.write_text(dev.read_text() * 2)
    assert run() == ["pos"]
    other = Embedder(BiLM(BiLMConfig.tiny()), device="cpu")
    assert run(embedder=other) == ["wsd", "pos"]
    int8 = Embedder(other.bilm, device="cpu", precision="int8")
    assert run(embedder=int8) == ["wsd", "pos"]


def test_report_includes_earlier_evaluations_of_the_same_weights(
    model: Model, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_calls(monkeypatch)

    def sections(evaluated: Model, name: str) -> list[str]:
        reproduce(evaluated, select_parts([name]), data, tmp_path / "out")
        lines = (tmp_path / "out" / "report.md").read_text().splitlines()
        headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
        assert headings.pop() == "Data (SHA-256)"
        return headings

    pos, wsd = PARTS["pos"].title, PARTS["wsd"].title
    assert sections(model, "pos") == [pos]
    assert sections(model, "wsd") == [wsd, pos]
    other = model._replace(embedder=Embedder(BiLM(BiLMConfig.tiny()), device="cpu"))
    assert sections(other, "pos") == [pos]


def test_perplexity_does_not_depend_on_the_precision_of_the_embedder(
    model: Model, data: Path, tmp_path: Path
) -> None:
    parts = select_parts(["perplexity"])
    int8 = Embedder(model.embedder.bilm, device="cpu", precision="int8")
    outcomes = reproduce(model._replace(embedder=int8), parts, data, tmp_path / "out")
    assert outcomes.records["perplexity"]["conditions"]["precision"] == "fp32"


def test_evaluation_may_be_computed_on_another_device_than_the_embedder(
    model: Model, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_calls(monkeypatch)
    model.embedder.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    parts = select_parts(["wsd", "pos"])
    parts["wsd"] = replace(parts["wsd"], device="cpu")
    outcomes = reproduce(model, parts, data, tmp_path / "out")
    devices = {name: record["conditions"]["device"] for name, record in outcomes.records.items()}
    assert devices == {"wsd": hardware_name(torch.device("cpu")), "pos": "a GPU"}


def test_invalid_data_do_not_stop_other_evaluations(
    model: Model, data: Path, tmp_path: Path
) -> None:
    (data / "tasks" / "wsd" / "semcor.data.xml").write_text("<corpus>")
    outcomes = reproduce(model, select_parts(["wsd", "pos"]), data, tmp_path / "out")
    assert list(outcomes.records) == ["pos"]
    assert "semcor.data.xml is not well-formed XML" in outcomes.failed["wsd"]
    report = (tmp_path / "out" / "report.md").read_text()
    assert "- wsd (failed): " in report


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 9 GiB."),
            "not enough memory (CUDA out of memory. Tried to allocate 9 GiB.)",
        ),
        (RuntimeError("can't allocate memory"), "not enough memory (can't allocate memory)"),
        (MissingExtraError("this needs the package 'spacy'"), "this needs the package 'spacy'"),
    ],
)
def test_too_little_memory_and_missing_packages_do_not_stop_other_evaluations(
    model: Model, data: Path, tmp_path: Path, error: Exception, reason: str
) -> None:
    def fail(*_: object) -> Result:
        raise error

    parts, messages = select_parts(["wsd", "pos"]), []
    parts["wsd"] = replace(parts["wsd"], measure=fail)
    outcomes = reproduce(model, parts, data, tmp_path / "out", show=messages.append)
    assert outcomes.failed == {"wsd": reason}
    assert f"wsd: failed: {reason}" in messages
    assert list(outcomes.records) == ["pos"]


def test_bug_in_an_evaluation_is_not_hidden(model: Model, data: Path, tmp_path: Path) -> None:
    def fail(*_: object) -> Result:
        raise RuntimeError("shapes do not match")

    parts = {"wsd": replace(PARTS["wsd"], measure=fail)}
    with pytest.raises(RuntimeError, match="shapes do not match"):
        reproduce(model, parts, data, tmp_path / "out")


def test_model_without_a_softmax_has_no_perplexity(
    embedder: Embedder, data: Path, tmp_path: Path
) -> None:
    embedder.save(tmp_path / "model")
    model = Model("biLM", embedder, partial(read_language_model, tmp_path / "model"))
    outcomes = reproduce(model, select_parts(["perplexity"]), data, tmp_path / "out")
    assert "has no softmax" in outcomes.not_run["perplexity"]
    assert not (tmp_path / "out" / "report.md").exists()


def test_perplexity_of_more_texts_is_measured(model: Model, data: Path, tmp_path: Path) -> None:
    text = tmp_path / "news[1].en.txt"
    text.write_text("The bank.\nThe bank.\n")
    outcomes = reproduce(model, select_parts(["pos"], [text]), data, tmp_path / "out")
    assert list(outcomes.records) == ["pos", "perplexity-news[1]"]
    record = outcomes.records["perplexity-news[1]"]
    assert record["details"]["tokens"] == 8
    assert list(record["conditions"]["data"]) == [text.name]


@pytest.mark.parametrize("quick", [False, True])
def test_given_files_are_measured_even_beside_a_compressed_copy(
    model: Model, tmp_path: Path, quick: bool
) -> None:
    text, pairs = tmp_path / "news.txt", tmp_path / "mine.data.txt"
    text.write_text("The bank.\n")
    pairs.write_text("bank\tN\t1-1\tThe bank\tA bank\n")
    for file in (text, pairs):
        copy = file.with_name(file.name + ".xz")
        copy.write_bytes(lzma.compress(file.read_bytes() * 2))
    parts = select_parts(["pairs"], [text], [pairs])
    outcomes = reproduce(model, parts, tmp_path, tmp_path / "out", quick=quick)
    assert outcomes.failed == {}
    assert outcomes.records["perplexity-news"]["details"]["tokens"] == 4
    assert outcomes.records["pairs-mine"]["details"] == {"pairs": 1}


def test_evaluations_are_selected_by_name_and_group(tmp_path: Path) -> None:
    assert select_parts() == PARTS
    assert list(select_parts(["scws", "table5", "wsd"])) == ["wsd", "scws"]
    assert tuple(select_parts(["intrinsic"])) == GROUPS["intrinsic"]
    with pytest.raises(InputError, match="unknown evaluation 'table9'; expected any of intrinsic"):
        select_parts(["table9"])
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        select_parts([], [tmp_path / "none.txt"])
    with pytest.raises(InputError, match="'pairs' needs at least one file of word pairs"):
        select_parts(["wsd", "pairs"])


def test_files_with_the_same_result_name_are_rejected(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "a.en.txt"
    for file in (first, second):
        file.touch()
    expected = f"results of {first} and {second} would both be called perplexity-a; rename"
    with pytest.raises(InputError, match=re.escape(expected)):
        select_parts(["wsd"], [first, second])
    assert list(select_parts(["wsd"], [first, first], [second])) == [
        "wsd",
        "perplexity-a",
        "pairs-a",
    ]


def test_damaged_result_is_reported_and_kept(model: Model, data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pos.json").write_text("{")
    outcomes = reproduce(model, select_parts(["pos"]), data, tmp_path / "out")
    assert "pos.json is damaged" in outcomes.failed["pos"]
    assert (tmp_path / "out" / "pos.json").read_text() == "{"


def test_damaged_result_of_another_evaluation_is_part_of_the_report(
    model: Model, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pos.json").write_text("{")
    outcomes = reproduce(model, select_parts(["wsd"]), data, tmp_path / "out")
    assert list(outcomes.records) == ["wsd"]
    assert outcomes.failed == {}
    report = (tmp_path / "out" / "report.md").read_text()
    assert f"## {PARTS['wsd'].title}" in report
    assert f"- pos (damaged): {tmp_path / 'out' / 'pos.json'} is damaged" in report


CPU = Resources(device="cpu", jobs=4)


@pytest.fixture
def training(data: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    """Data of SICK and WNUT-17 and a trainer with known scores, which fails on WNUT-17."""
    write_data(data, "sick", "wnut17")
    monkeypatch.setattr(train, "train_command", fake_command)
    return Training(replace(TINY, seeds=2), CPU)


def test_table_of_trained_tasks_has_figures_and_says_what_is_missing(
    model: Model, data: Path, tmp_path: Path, training: Training
) -> None:
    vectors = tmp_path / "glove.100d.txt"
    vectors.write_text("the 1 2\na 1 2\n")
    training = training._replace(resources=replace(CPU, vectors=vectors))
    out = tmp_path / "out"
    outcomes = reproduce(model, select_parts(["table1"]), data, out, training=training)
    record = outcomes.records["table1"]
    assert record == read(out / "table1.json")
    assert record["scores"] == {
        "SICK (accuracy)": {
            "seeds": "0, 1",
            "baseline": pytest.approx([40, 41]),
            "+ ELMo (tiny)": pytest.approx([50, 51]),
            "relative error reduction (tiny), %": pytest.approx([1000 / 60, 1000 / 59]),
        }
    }
    assert record["runs"] == [f"sick-{kind}-{n}" for kind in ("baseline", "tiny") for n in (0, 1)]
    assert record["conditions"]["device"] == "a CPU"
    assert vectors.name in record["conditions"]["data"]
    finetuning, words, *missing = record["notes"]
    assert finetuning.startswith("The biLM was not fine-tuned")
    assert words.startswith("Word vectors: `glove.100d.txt`, 2 words, 2 dimensions. It has no")
    assert "such as `i`, `'s`, `n't`, `1`, `2018`." in words
    names = [f"wnut17-{kind}-{n}" for kind in ("baseline", "tiny") for n in (0, 1)]
    runs = "wnut17 (baseline, tiny; seeds 0, 1)"
    assert f"No results for {runs}: failed: no memory (exit code 1)." in missing
    assert any("squad not found; source: https://" in sentence for sentence in missing)
    assert outcomes.failed == dict.fromkeys(names, "no memory (exit code 1)")
    assert outcomes.unfinished == []
    report = (out / "report.md").read_text()
    assert "| SICK (accuracy) | 0, 1 | 40.50 ± 0.71 | 50.50 ± 0.71 | 16.81 ± 0.20 |" in report
    [failed] = [
        line for line in report.splitlines() if line.endswith(" (failed): no memory (exit code 1)")
    ]
    assert all(name in failed for name in names)
    assert all((out / figure["file"]).is_file() for figure in record["figures"])
    assert len(record["figures"]) == 2


def test_every_table_states_how_its_data_differ_from_the_paper(
    model: Model, data: Path, tmp_path: Path, training: Training
) -> None:
    write_data(data, "srl")
    one_seed = training._replace(plan=replace(training.plan, seeds=1))
    outcomes = reproduce(model, select_parts(["table3"]), data, tmp_path, training=one_seed)
    notes = outcomes.records["table3"]["notes"]
    assert notes[0] == f"EWT SRL: {DATASETS['srl'].about}"
    assert not any(note.startswith("SNLI:") for note in notes)  # there is no such column


def test_report_keeps_tables_of_earlier_calls(
    model: Model, data: Path, tmp_path: Path, training: Training
) -> None:
    for name in ("table1", "pos"):
        reproduce(model, select_parts([name]), data, tmp_path / "out", training=training)
    lines = (tmp_path / "out" / "report.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        f"## {PARTS['table1'].title}",
        f"## {PARTS['pos'].title}",
        "## Data (SHA-256)",
    ]


def test_changed_settings_are_stated(
    model: Model, data: Path, tmp_path: Path, training: Training
) -> None:
    plan = replace(
        training.plan,
        bilms={"tiny": Bilm("tiny", "hash", "int8")},
        seeds=1,
        settings=("training.epochs=1",),
    )
    changed = training._replace(plan=plan)
    outcomes = reproduce(model, select_parts(["table1"]), data, tmp_path, training=changed)
    record = outcomes.records["table1"]
    assert "Settings of all runs: training.epochs=1." in record["notes"]
    assert record["conditions"]["precision"] == "int8"  # that of the runs, not of `model`
    assert record["runs"] == [
        "sick-baseline-training.epochs_1-0", "sick-tiny-precision_int8-training.epochs_1-0"
    ]  # fmt: skip


def test_quick_run_does_not_replace_results_of_a_full_one(
    model: Model, data: Path, tmp_path: Path, training: Training
) -> None:
    parts, out = select_parts(["table1"]), tmp_path / "out"
    reproduce(model, parts, data, out, training=training)
    before = {path: path.read_bytes() for path in out.rglob("*.json")}
    quick = training._replace(plan=replace(training.plan, quick=True))
    with pytest.raises(InputError, match="out has results of a full run; choose another folder"):
        reproduce(model, parts, data, out, training=quick, quick=True)
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == before


def test_table_without_rows_is_reported_as_not_run(
    model: Model, data: Path, tmp_path: Path, training: Training
) -> None:
    """Only the runs without fine-tuning have finished."""
    write_data(data, "srl")
    records = tmp_path / "out" / "runs"
    reproduce(model, select_parts(["table1"]), data, tmp_path / "out", training=training)
    assert any(records.glob("srl-tiny-*.json"))
    limited = training._replace(resources=replace(CPU, minutes=0.001))
    parts = select_parts(["finetuning"])
    outcomes = reproduce(model, parts, data, tmp_path / "out", training=limited)
    assert outcomes.records == {}
    assert "srl (tiny-finetune_True; seeds 0, 1)" in outcomes.not_run["finetuning"]


def test_quick_results_have_samples_and_no_findings(
    model: Model, data: Path, tmp_path: Path
) -> None:
    parts, out = select_parts(["perplexity", "pos"]), tmp_path / "out"
    valid = data / "corpus" / "valid.txt.xz"
    valid.write_bytes(lzma.compress(b"The bank.\n" * 30))
    quick = reproduce(model, parts, data, out, quick=True)
    assert quick.records["perplexity"]["details"]["tokens"] == 12 * 4
    assert quick.records["pos"]["findings"] == []
    assert "**Quick run: " in (out / "report.md").read_text()
    full = reproduce(model, parts, data, out)
    assert full.records["perplexity"]["details"]["tokens"] == 30 * 4
    [found] = full.records["pos"]["findings"]
    assert found.endswith("not confirmed (accuracy 100.0 and 100.0).")
    assert "**Quick run: " not in (out / "report.md").read_text()


def test_time_limit_leaves_runs_for_a_later_call(
    model: Model, data: Path, tmp_path: Path, training: Training
) -> None:
    plan = Plan(bilms=training.plan.bilms, seeds=1, finetuned=frozenset({"sick"}))
    limited = Training(plan, replace(CPU, minutes=0.001))
    parts = select_parts(["table1"])
    outcomes = reproduce(model, parts, data, tmp_path / "out", training=limited)
    assert outcomes.records == {}
    assert set(outcomes.unfinished) == {
        f"{dataset}-{kind}-0"
        for dataset in ("sick", "wnut17")
        for kind in ("baseline", "tiny-finetune_True" if dataset == "sick" else "tiny")
    }
    assert "too little time left" in outcomes.not_run["table1"]
    later = reproduce(model, parts, data, tmp_path / "out", training=Training(plan, CPU))
    assert later.records["table1"]["runs"] == ["sick-baseline-0", "sick-tiny-finetune_True-0"]
