"""Training of what is missing. Oracle: a trainer that counts its starts and has known scores."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elmore.analysis.training import records
from elmore.analysis.training import train as module
from elmore.analysis.training.datasets import DATASETS, Files
from elmore.analysis.training.run import Bilm, Plan
from elmore.analysis.training.train import Resources, Trained, train_command, train_missing
from elmore.errors import InputError
from tests.analysis.training.fake import TINY, fake_command, write_data

CPU = Resources(device="cpu", jobs=3)
ONE_SEED = replace(TINY, seeds=1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_data(tmp_path / "data", "sick", "conll2003")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "train_command", fake_command)


def train(data: Path, *runs: object, plan: Plan = ONE_SEED, resources: Resources = CPU) -> Trained:
    return train_missing(plan, runs, data, data.parent / "out", resources)


def started(data: Path) -> list[str]:
    """Return the names of the runs that were started since the last call, sorted."""
    path = data.parent / "out" / "started.txt"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(names)


def test_finished_runs_leave_one_small_file(data: Path) -> None:
    baseline, elmo = *ONE_SEED.runs("sick", None), *ONE_SEED.table1_runs("sick", "tiny")
    trained = train(data, baseline, elmo)
    assert trained.problems == {}
    assert trained.results["sick-baseline-0"].dev == pytest.approx(50)
    assert trained.results["sick-baseline-0"].test is None
    assert trained.results["sick-tiny-0"].dev == pytest.approx(60)
    assert trained.results["sick-tiny-0"].test == pytest.approx(50)
    assert trained.results["sick-tiny-0"].curve == pytest.approx([60])
    assert trained.results["sick-tiny-0"].layer_weights == {"input": [0.2, 0.5, 0.3]}
    out = data.parent / "out"
    assert not (out / "unfinished").exists()
    record = json.loads((out / "runs" / "sick-tiny-0.json").read_text())
    assert record == trained.records["sick-tiny-0"]
    assert record["conditions"]["weights_hash"] == "hash of tiny"
    assert record["conditions"]["config"]["training"]["seed"] == 0
    assert record["conditions"]["hardware"] == "a CPU"
    assert record["conditions"]["seconds"] == 3.0  # in all, not only in the epochs
    assert list(record["conditions"]["data"]) == [
        f"tasks/snli/SICK_{part}.txt" for part in ("train", "trial", "test")
    ]
    assert str(data.parent) not in json.dumps(record["conditions"])


def test_runs_are_shared_and_not_repeated(data: Path) -> None:
    runs = [*ONE_SEED.runs("sick", None), *ONE_SEED.runs("sick", "tiny")]
    train(data, *runs, *runs)
    assert started(data) == ["sick-baseline-0", "sick-tiny-0"]
    assert train(data, *runs).records.keys() == {"sick-baseline-0", "sick-tiny-0"}
    assert started(data) == []


def test_test_score_of_a_finished_run_requires_another_run(data: Path) -> None:
    train(data, *ONE_SEED.runs("sick", None))
    trained = train(data, *ONE_SEED.table1_runs("sick", None), *ONE_SEED.runs("sick", None))
    assert trained.results["sick-baseline-0"].test == pytest.approx(40)
    assert started(data) == ["sick-baseline-0"] * 2
    assert train(data, *ONE_SEED.runs("sick", None)).results["sick-baseline-0"].test is not None
    assert started(data) == []


def test_change_of_conditions_repeats_the_runs_it_concerns(data: Path) -> None:
    def run(plan: Plan = ONE_SEED, resources: Resources = CPU) -> list[str]:
        runs = [*plan.runs("sick", None), *plan.runs("sick", "tiny"), *plan.runs("conll2003", None)]
        train(data, *runs, plan=plan, resources=resources)
        return started(data)

    every = ["conll2003-baseline-0", "sick-baseline-0", "sick-tiny-0"]
    assert run() == every
    other = replace(ONE_SEED, bilms={"tiny": Bilm("tiny", "other weights")})
    assert run(other) == ["sick-tiny-0"]
    path = data / "tasks" / "snli" / "SICK_trial.txt"
    path.write_text(path.read_text() * 2)
    assert run(other) == every[1:]
    vectors = data / "vectors.txt"
    vectors.write_text("the 1 2\n")
    assert run(other, replace(CPU, vectors=vectors)) == every
    (data.parent / "out" / "runs" / "sick-tiny-0.json").write_text("{")
    assert run(other, replace(CPU, vectors=vectors)) == ["sick-tiny-0"]


def test_unfinished_run_of_another_commit_does_not_count(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: a run that has finished, but was not recorded because the disk was full."""
    [run] = ONE_SEED.runs("sick", None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for commit, expected in (("a", ["sick-baseline-0"]), ("a", []), ("b", ["sick-baseline-0"])):
        with monkeypatch.context() as patch:
            patch.setattr(records, "source_commit", lambda commit=commit: commit)
            patch.setattr(records, "write_json", full)
            assert train(data, run).problems[run.name].startswith("failed: ")
        assert started(data) == expected


def test_unfinished_run_without_test_scores_does_not_count_for_one_with_them(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: a run that has finished, but was not recorded because the disk was full."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "write_json", full)
        train(data, *ONE_SEED.runs("sick", None))
    trained = train(data, *ONE_SEED.table1_runs("sick", None))
    assert started(data) == ["sick-baseline-0"] * 2
    assert trained.results["sick-baseline-0"].test == pytest.approx(40)


def test_missing_file_is_reported_once_and_the_rest_runs(data: Path) -> None:
    (data / "tasks" / "snli" / "SICK_trial.txt").unlink()
    messages: list[str] = []
    plan = replace(TINY, seeds=2)
    runs = [*plan.runs("sick", None), *plan.runs("conll2003", None)]
    trained = train_missing(plan, runs, data, data.parent / "out", CPU, messages.append)
    path = data / "tasks" / "snli" / "SICK_trial.txt"
    reason = f"not run: {path} not found; source: {DATASETS['sick'].source}"
    assert trained.problems == {"sick": reason}
    assert messages[0] == f"sick: {reason}"
    assert trained.records.keys() == {"conll2003-baseline-0", "conll2003-baseline-1"}


def test_shares_and_quick_samples_are_trained_on(data: Path) -> None:
    plan = replace(TINY, quick=True)
    [run] = plan.runs("sick", None, share=0.3)
    record = train(data, run, plan=plan).records[run.name]
    [text] = record["metrics"]["train"]
    assert text.startswith("header\n")
    assert len(text.splitlines()) == 1 + 6  # 0.3 of twenty, which are fewer than a quick sample


@pytest.mark.parametrize(
    ("minutes", "order"),
    [
        (None, ["conll2003-baseline-0", "conll2003-baseline-1", "sick-baseline-0"]),
        (60.0, ["conll2003-baseline-0", "sick-baseline-0", "conll2003-baseline-1"]),
    ],
)
def test_unfinished_runs_come_first_then_long_ones_and_with_a_time_limit_first_seeds(
    data: Path, minutes: float | None, order: list[str]
) -> None:
    plan, out = replace(TINY, seeds=2), data.parent / "out"
    (out / "unfinished" / "sick-baseline-1").mkdir(parents=True)
    runs = [run for name in ("sick", "conll2003") for run in plan.runs(name, None)]
    train(data, *runs, plan=plan, resources=replace(CPU, jobs=1, minutes=minutes))
    assert (out / "started.txt").read_text().split() == ["sick-baseline-1", *order]


def test_epoch_without_a_line_in_the_metrics_is_reported(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command_with_two_epochs(*args: object, **options: object) -> list[str]:
        *command, metrics = fake_command(*args, **options)
        return [*command, json.dumps({**json.loads(metrics), "epochs": 2})]

    monkeypatch.setattr(module, "train_command", command_with_two_epochs)
    problems = train(data, *ONE_SEED.runs("sick", None)).problems
    assert re.search(r"metrics\.jsonl lacks an epoch; .* \(2\)", problems["sick-baseline-0"])
    monkeypatch.setattr(module, "train_command", fake_command)
    assert train(data, *ONE_SEED.runs("sick", None)).records.keys() == {"sick-baseline-0"}


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF"])
def test_environment_of_the_user_takes_precedence(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    code = f"import os, sys; print(os.environ[{name!r}]); sys.exit(1)"
    command = [sys.executable, "-S", "-c", code]
    monkeypatch.setattr(module, "train_command", lambda *_, **__: command)
    monkeypatch.setenv(name, "of the user")
    problems = train(data, *ONE_SEED.runs("sick", None)).problems
    assert problems["sick-baseline-0"].startswith("failed: of the user ")
    monkeypatch.delenv(name)
    problems = train(data, *ONE_SEED.runs("sick", None)).problems
    default = {"OMP_NUM_THREADS": str(os.cpu_count()), "PYTORCH_CUDA_ALLOC_CONF": "expandable_seg"}
    assert problems["sick-baseline-0"].startswith(f"failed: {default[name]}")


def test_weights_are_kept_on_request(data: Path) -> None:
    resources = replace(CPU, keep_weights=True)
    train(data, *ONE_SEED.runs("sick", None), resources=resources)
    weights = data.parent / "out" / "trained" / "sick-baseline-0" / "model.safetensors"
    assert weights.read_text() == "weights"


def test_kept_weights_of_a_run_that_was_not_recorded_count_in_the_next_call(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources, runs = replace(CPU, keep_weights=True), ONE_SEED.runs("sick", None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "write_json", full)
        trained = train(data, *runs, resources=resources)
    assert not trained.records
    assert trained.problems["sick-baseline-0"].startswith("failed: ")
    assert train(data, *runs, resources=resources).problems == {}
    assert started(data) == ["sick-baseline-0"]
    out = data.parent / "out"
    assert (out / "trained" / "sick-baseline-0" / "model.safetensors").exists()
    assert not (out / "unfinished").exists()


def test_command_has_the_files_and_settings_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").touch()
    resources = Resources(vectors=tmp_path / "glove.txt", device="cuda")
    [run] = ONE_SEED.runs("snli", "tiny", "elmo.layers=top", test=True)
    command = train_command(
        ONE_SEED,
        run,
        Files(
            (tmp_path / "a", tmp_path / "b"),
            tmp_path / "dev",
            tmp_path / "test",
            (tmp_path / "typos",),
        ),
        tmp_path / "run",
        resources,
        resume=True,
    )
    assert command[1:] == [
        "-m", "elmore", "train", "entailment", "-o", f"{tmp_path}/run",
        "--dev", f"{tmp_path}/dev", "--train", f"{tmp_path}/a", "--train", f"{tmp_path}/b",
        "--test", f"{tmp_path}/test", f"{tmp_path}/typos", "--model", "tiny",
        "--vectors", f"{tmp_path}/glove.txt", "--set=data.class_weights=balanced",
        '--set=elmo.layers="top"', "--seed", "0", "--device", "cuda", "--resume",
    ]  # fmt: skip


def test_two_different_runs_with_one_name_are_rejected(data: Path) -> None:
    [run] = ONE_SEED.runs("sick", None)
    assert train(data, run, replace(run)).problems == {}
    with pytest.raises(InputError, match="two different runs are called sick-a_b-0"):
        train(data, replace(run, bilm="a b"), replace(run, bilm="a_b"))


def test_missing_word_vectors_are_reported_before_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file of word vectors"):
        Resources(vectors=tmp_path / "glvoe.txt")


def test_only_selected_datasets_are_trained(data: Path) -> None:
    runs = [*ONE_SEED.runs("sick", None), *ONE_SEED.runs("conll2003", None)]
    train(data, *ONE_SEED.runs("conll2003", None))
    trained = train(data, *runs, resources=replace(CPU, datasets=frozenset({"conll2003"})))
    assert trained.records.keys() == {"conll2003-baseline-0"}
    reason = "not run: its dataset was not selected"
    assert trained.problems == {"sick-baseline-0": reason}
    trained = train(data, *runs, resources=replace(CPU, datasets=frozenset({"sick"})))
    assert trained.records.keys() == {"conll2003-baseline-0", "sick-baseline-0"}
    assert started(data) == ["conll2003-baseline-0", "sick-baseline-0"]
    (data / "tasks" / "snli" / "SICK_trial.txt").unlink()
    trained = train(data, *runs, resources=replace(CPU, datasets=frozenset({"conll2003"})))
    assert trained.problems == {"sick-baseline-0": reason}
    with pytest.raises(InputError, match="unknown dataset 'snil'; expected any of squad, snli"):
        Resources(datasets=frozenset({"sick", "snil"}))


@pytest.mark.parametrize("arguments", [{"jobs": 0}, {"minutes": -1.0}, {"minutes": float("nan")}])
def test_invalid_resources_are_rejected(arguments: dict) -> None:
    with pytest.raises(InputError, match="must be positive"):
        Resources(**arguments)
