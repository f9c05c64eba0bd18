"""NER, and training of tasks in general. Oracles: the training labels, an uninterrupted run."""

import gzip
import json
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

import elmore
from elmore.atomic import lock
from elmore.errors import InputError
from elmore.signals import InterruptedRunError
from elmore.tasks import get_task, load_task, read_task_config, train_task
from elmore.tasks.fit import Fit
from elmore.tasks.layers import LayerCache
from elmore.tasks.ner.data import NerExample, read_entities
from elmore.tasks.ner.task import Ner
from elmore.tasks.spans import LabeledSpan
from elmore.tasks.trained import TrainedTask
from tests.cli.conftest import assert_rejected
from tests.tasks.conftest import SENTENCES

SMALL = [
    "words.dim=16", "words.min_count=1", "words.char_filters=8", "words.dropout=0.1",
    "tagger.hidden=16", "tagger.dropout=0.1", "training.lr=0.01", "training.epochs=40",
    "training.batch_size=2", "training.patience=60", "training.lr_patience=60", "elmo.dropout=0.1",
]  # fmt: skip
BASELINE = [*SMALL, "elmo.place=none"]
RUNS = ("uninterrupted", "resumed")


def train(folder: Path, conll: Path, changes: list[str], **more: object) -> dict:
    config = read_task_config("ner", changes=changes)
    return train_task(
        "ner", folder, train=[conll], dev=conll, config=config, device="cpu", progress=False, **more
    )


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_reads_conll_columns(conll: Path, tmp_path: Path) -> None:
    examples = read_entities(conll)
    assert len(examples) == 4
    assert examples[1].tokens == ["Paris", "is", "far", "from", "New", "York", "."]
    assert examples[1].entities == [LabeledSpan("LOC", 0, 1), LabeledSpan("LOC", 4, 6)]
    (tmp_path / "tabs").write_text("-DOCSTART-\tO\n\nNew York\tNNP\tS-LOC\nx\tNN\tO\n\n\n\n")
    [only] = read_entities(tmp_path / "tabs")
    assert only == NerExample(["New York", "x"], [LabeledSpan("LOC", 0, 1)])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Ada", "line 2: expected a word and, in the last column, a tag .* got 'Ada'"),
        ("Ada PER", "line 2: expected a word"),
        ("Ada B-", "line 2: expected a word"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "x.conll").write_text(f"a O\n{line}\n")
    with pytest.raises(InputError, match=message):
        read_entities(tmp_path / "x.conll")


@pytest.mark.usefixtures("plots")
@pytest.mark.parametrize("place", ["none", "input", "both"])
def test_learns_and_reloads(conll: Path, model: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "run"
    changes = [*SMALL, f"elmo.place={place}", f"elmo.model={model}", "elmo.dropout=0.1"]
    summary = train(folder, conll, changes, test=conll)
    assert summary["scores"]["dev"]["f1"] > 0.95
    assert summary["scores"]["test"] == summary["scores"]["dev"]
    trained = load_task(folder, device="cpu")
    examples = read_entities(conll)
    assert trained.evaluate(conll) == summary["scores"]["dev"]
    # Predictions do not depend on the batch.
    together = trained.predict(examples)
    for example, entities in zip(examples, together, strict=True):
        assert trained.predict([example])[0] == pytest.approx(entities, abs=1e-5)
        assert all(0 < probability <= 1 for probability in entities.values())
    assert sorted(summary["elmo"]) == {"none": [], "input": ["input"]}.get(
        place, ["input", "output"]
    )
    for mix in summary["elmo"].values():
        assert sum(mix["weights"]) == pytest.approx(1)
    names = {path.name for path in folder.iterdir()}
    assert names >= {"config.toml", "metrics.json", "metrics.jsonl", "curves.png", "task.json"}
    assert "checkpoints" not in names


def test_same_seed_gives_the_same_weights(conll: Path, tmp_path: Path) -> None:
    quick = [*BASELINE, "training.epochs=3"]
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(tmp_path / name, conll, [*quick, f"training.seed={seed}"])
    a, b, c = ((tmp_path / n / "model.safetensors").read_bytes() for n in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize("average", [0, 0.9])
def test_resumed_run_equals_an_uninterrupted_one(
    conll: Path, tmp_path: Path, average: float
) -> None:
    quick = [*BASELINE, "training.epochs=6", f"training.average={average}"]
    train(tmp_path / "uninterrupted", conll, quick)

    with pytest.raises(InterruptedRunError, match="interrupted after epoch 3"):
        train(tmp_path / "resumed", conll, quick, report=interrupt_at(3))
    # The newest checkpoint is damaged, so the previous one is used.
    [*_, newest] = sorted((tmp_path / "resumed" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-9])
    other = tmp_path / "other.conll"
    other.write_text(conll.read_text() + "\nmore O\n")
    with pytest.raises(InputError, match="was started with other data"):
        train(tmp_path / "resumed", other, quick, resume=True)
    train(tmp_path / "resumed", conll, quick, resume=True)
    for name in ("model.safetensors", "words.json"):
        expected, actual = ((tmp_path / run / name).read_bytes() for run in RUNS)
        assert actual == expected, name
    losses = [[r["loss"] for r in metrics(tmp_path / run)] for run in RUNS]
    assert losses[0] == losses[1]


def interrupt_at(epoch: int) -> Callable[[dict], None]:
    def report(record: dict) -> None:
        if record.get("epoch") == epoch:
            signal.raise_signal(signal.SIGTERM)

    return report


def test_baseline_resumes_with_other_elmo_settings(conll: Path, tmp_path: Path) -> None:
    """ELMo settings have no effect on a baseline. No other setting may change."""
    changes = [*BASELINE, "training.epochs=2"]
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", conll, changes, report=interrupt_at(1))
    with pytest.raises(InputError, match=r"other settings: training\.seed was 0, not 1"):
        train(tmp_path / "run", conll, [*changes, "training.seed=1"], resume=True)
    other_elmo = [*changes, "elmo.model=moved", "elmo.penalty=0.5"]
    assert train(tmp_path / "run", conll, other_elmo, resume=True)["epochs"] == 2


class ConstantF1Ner(Ner):
    """NER that always reports the same F1, and the number of epochs as a second score."""

    def __init__(self) -> None:
        self.epochs = 0

    def score(self, examples: Sequence[NerExample], predictions: object) -> dict[str, float]:
        self.epochs += 1
        return {"f1": 0.5, "epochs": self.epochs}


def test_reported_scores_belong_to_the_saved_weights(conll: Path, tmp_path: Path) -> None:
    """Of epochs with equal dev scores, the last one is saved."""
    config = read_task_config("ner", changes=[*BASELINE, "training.epochs=3"])
    summary = train_task(
        ConstantF1Ner(), tmp_path / "run", train=[conll], dev=conll, config=config, device="cpu"
    )
    assert summary["scores"]["dev"] == {"f1": 0.5, "epochs": 3}


def test_early_stopping_and_learning_rate_decay(conll: Path, tmp_path: Path) -> None:
    quick = [*BASELINE, "training.patience=2", "training.lr_patience=1"]
    summary = train(tmp_path / "run", conll, quick)
    records = metrics(tmp_path / "run")
    scores = [record["dev"]["f1"] for record in records]
    assert scores[-1] > 0
    assert summary["epochs"] == scores.index(max(scores)) + 3  # two epochs without improvement
    # The rate is halved after an epoch without improvement, unless the best score is still 0.
    rate, best = 0.01, -1.0
    for record, score in zip(records, scores, strict=True):
        assert record["lr"] == pytest.approx(rate)
        rate /= 2 if 0 < best >= score else 1
        best = max(best, score)


def test_run_whose_checkpoints_are_all_damaged_does_not_start_over(
    conll: Path, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", conll, BASELINE, report=interrupt_at(3))
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    for _ in range(2):
        with pytest.raises(InputError, match="no checkpoint can be used"):
            train(tmp_path / "run", conll, BASELINE, resume=True)


def test_lost_metrics_do_not_change_the_reported_scores(conll: Path, tmp_path: Path) -> None:
    """The best of three epochs is before the interruption."""
    scores = iter([0.5, 0.9, 0.1, 0.1])
    task = Ner()
    task.score = lambda *_: {"f1": next(scores)}
    config = read_task_config("ner", changes=[*BASELINE, "training.epochs=4"])
    options = {"train": conll, "dev": conll, "config": config, "device": "cpu", "progress": False}
    with pytest.raises(InterruptedRunError):
        train_task(task, tmp_path / "run", **options, report=interrupt_at(3))
    (tmp_path / "run" / "metrics.jsonl").unlink()
    summary = train_task(task, tmp_path / "run", **options, resume=True)
    assert summary["scores"] == {"dev": {"f1": 0.9}}


@pytest.mark.usefixtures("plots")
def test_incomplete_line_of_the_metrics_costs_only_the_plot(conll: Path, tmp_path: Path) -> None:
    changes, notes = [*BASELINE, "training.epochs=3"], []
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", conll, changes, report=interrupt_at(1))
    (tmp_path / "run" / "metrics.jsonl").write_text('{"epoch": 1, "dev": {}}\n')
    summary = train(tmp_path / "run", conll, changes, resume=True, report=notes.append)
    assert summary["epochs"] == 3
    assert "no plot of the learning curves: a line of metrics.jsonl has no" in notes[-1]["note"]


def test_broken_matplotlib_costs_only_the_plot(
    conll: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plot(*_: object) -> None:
        raise ValueError("Key backend: 'nonsense' is not a valid value")  # as with MPLBACKEND

    monkeypatch.setattr("elmore.tasks.train.plot_task", plot)
    notes: list[dict] = []
    train(tmp_path / "run", conll, [*BASELINE, "training.epochs=1"], report=notes.append)
    assert "no plot of the learning curves: Key backend: 'nonsense'" in notes[-1]["note"]
    assert load_task(tmp_path / "run", device="cpu")("Ada lived.")["tokens"]


def test_lost_lines_of_the_metrics_are_reported(conll: Path, tmp_path: Path) -> None:
    changes, notes = [*BASELINE, "training.epochs=4"], []
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", conll, changes, report=interrupt_at(3))
    path = tmp_path / "run" / "metrics.jsonl"
    first, *_ = path.read_text().splitlines(keepends=True)
    path.write_text(first + first[:20])  # the second line is cut off
    train(tmp_path / "run", conll, changes, resume=True, report=notes.append)
    assert notes[0]["note"] == "metrics.jsonl has no line of epoch 2, 3"
    assert [record["epoch"] for record in metrics(tmp_path / "run")] == [1, 4]


def test_word_vectors_are_found_from_any_folder(
    conll: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vectors.txt").write_text("ada 1 2\nlondon 3 4\n")
    monkeypatch.chdir(tmp_path)
    train(tmp_path / "run", conll, [*BASELINE, "words.vectors=vectors.txt", "training.epochs=1"])
    config = read_task_config("ner", tmp_path / "run" / "config.toml")
    assert config.words.vectors == str(tmp_path.resolve() / "vectors.txt")


def test_no_break_space_is_part_of_a_word(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("10\u00a0000 O\nAda  B-PER\n", encoding="utf-8")
    [example] = read_entities(tmp_path / "a.conll")
    assert example.tokens == ["10\u00a0000", "Ada"]


def test_resumed_run_needs_the_same_word_vectors(conll: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("ada 1 2\nlondon 3 4\n")
    changes = [*BASELINE, f"words.vectors={vectors}"]
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", conll, changes, report=interrupt_at(1))
    vectors.write_text("ada 1 2\nlondon 3 5\n")
    with pytest.raises(InputError, match="was started with other data"):
        train(tmp_path / "run", conll, changes, resume=True)


def test_nan_loss_stops_the_run(conll: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="NaN or infinite in epoch 1"):
        train(tmp_path / "run", conll, [*BASELINE, "training.lr=1e30", "training.clip_norm=1e30"])


def test_nan_loss_is_detected_in_the_first_step(
    conll: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []

    def nan_step(fit: Fit, batch: object) -> torch.Tensor:
        steps.append(batch)
        return torch.tensor(math.nan)

    monkeypatch.setattr(Fit, "_train_step", nan_step)
    with pytest.raises(InputError, match="NaN or infinite in epoch 1"):
        train(tmp_path / "run", conll, [*BASELINE, "training.batch_size=1"])
    assert len(steps) == 1  # of the four in an epoch


@pytest.fixture
def limit_of_one_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a time limit end within the second epoch."""
    run_epoch = Fit._run_epoch

    def run_and_expire(fit: Fit) -> dict:
        record = run_epoch(fit)
        if fit.limit.seconds < math.inf:
            fit.epoch_seconds = fit.limit.remaining + 1
        return record

    monkeypatch.setattr(Fit, "_run_epoch", run_and_expire)


@pytest.mark.usefixtures("limit_of_one_epoch")
def test_time_limit_is_reported(run, conll: Path, tmp_path: Path) -> None:
    data = ("--train", conll, "--dev", conll, "--no-elmo", "--set", "tagger.hidden=4")
    result = run("train", "ner", *data, "-o", tmp_path / "late", "--max-minutes", "9")
    seconds = r"\d+ s of training, stopped by --max-minutes; continue with --resume"
    assert re.search(rf"1 epoch in {seconds}; the whole command took \d+ s -> ", result.out)


@pytest.mark.usefixtures("limit_of_one_epoch")
def test_run_stopped_by_the_time_limit_is_usable_and_resumes(conll: Path, tmp_path: Path) -> None:
    """Oracle: a run without a time limit."""
    changes = [*BASELINE, "training.epochs=4"]
    summary = train(tmp_path / "run", conll, changes, test=conll, max_minutes=9)
    [record] = metrics(tmp_path / "run")
    assert (summary["epochs"], summary["cut_short"]) == (1, True)
    assert summary["scores"]["dev"] == summary["scores"]["test"] == record["dev"]
    assert load_task(tmp_path / "run", device="cpu").evaluate(conll) == record["dev"]

    shutil.copytree(tmp_path / "run", tmp_path / "old")
    shutil.rmtree(tmp_path / "old" / "checkpoints")  # as older versions did
    with pytest.raises(InputError, match="is complete"):
        train(tmp_path / "old", conll, changes, test=conll, resume=True)
    resumed = train(tmp_path / "run", conll, changes, test=conll, resume=True)
    assert (resumed["epochs"], resumed["cut_short"]) == (4, False)
    train(tmp_path / "whole", conll, changes, test=conll)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("run", "whole")]
    assert weights[0] == weights[1]
    with pytest.raises(InputError, match="is complete"):
        train(tmp_path / "run", conll, changes, test=conll, resume=True)


@pytest.mark.parametrize(
    ("place", "what"), [("none", "the first epoch"), ("input", "the biLM pass over all sentences")]
)
def test_time_limit_that_is_too_short_is_refused(
    conll: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    what: str,
) -> None:
    # Each look at the clock takes a second.
    clock = SimpleNamespace(monotonic=map(float, count()).__next__)
    monkeypatch.setattr("elmore.tasks.time_limit.time", clock)
    changes = [*SMALL, f"elmo.place={place}", f"elmo.model={model}", "training.epochs=1"]
    with pytest.raises(InputError, match=f"min is too short: {what} would end after about"):
        train(tmp_path / "run", conll, changes, max_minutes=1e-9)
    resumed = train(tmp_path / "run", conll, changes, resume=True, max_minutes=math.inf)
    assert (resumed["epochs"], resumed["cut_short"]) == (1, False)
    with pytest.raises(InputError, match="max_minutes must be positive"):
        train(tmp_path / "other", conll, BASELINE, max_minutes=0)


def test_interruption_of_the_bilm_pass_is_reported(
    run, conll: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = LayerCache._fill

    def interrupt(*args: object) -> Iterator[object]:
        yield next(fill(*args))
        signal.raise_signal(signal.SIGTERM)

    data = ("--train", conll, "--dev", conll, "-o", tmp_path / "run", "-m", model)
    command = ("train", "ner", *data, "--set", "training.epochs=1")
    with monkeypatch.context() as patch:
        patch.setattr(LayerCache, "_fill", interrupt)
        result = run(*command)
    assert result.code == 130
    assert "elmore: interrupted before the first checkpoint; resume the run" in result.err
    assert run(*command, "--resume").code == 0


def test_changes_keep_the_other_defaults_of_a_task() -> None:
    config = read_task_config("ner", changes=["training.lr=0.5", "words.dim=7"])
    default = get_task("ner").config()
    assert config.training.lr == 0.5
    assert config.training.patience == default.training.patience
    assert config.words.char_filters == default.words.char_filters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.batch_size=0", "training.batch_size must be at least 1"),
        ("words.dim=1000000000", "words.dim must be at most 10,000, got 1000000000"),
        ("training.lr=0", "training.lr must be positive"),
        ("elmo.dropout=1", "elmo.dropout must lie in"),
        ("elmo.precision=int4", "precision"),
    ],
)
def test_invalid_settings_are_rejected(change: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_task_config("ner", changes=[change])


def test_word_vectors_are_saved_with_the_task(conll: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = dict(zip(["ada", "london", "paris", "berlin"], rng.normal(size=(4, 5)), strict=True))
    lines = (f"{word} {' '.join(map(str, vector))}\n" for word, vector in vectors.items())
    (tmp_path / "vectors.txt").write_text("".join(lines))
    changes = [*BASELINE, f"words.vectors={tmp_path / 'vectors.txt'}", "training.epochs=2"]
    train(tmp_path / "run", conll, changes)
    (tmp_path / "vectors.txt").unlink()  # no longer needed
    trained = load_task(tmp_path / "run", device="cpu")
    assert trained.encode.index.known == [
        "berlin"
    ]  # the only word that is not in the training data
    row = trained.encode.index.row("Berlin")
    actual = trained.model.words.table(torch.tensor([[row]]))[0, 0]
    np.testing.assert_allclose(actual.detach(), vectors["berlin"], rtol=1e-6)
    assert isinstance(trained.predict(["Berlin is far ."])[0], dict)


# Command line


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "entities.conll").write_text(SENTENCES)
    train(folder / "ner", folder / "entities.conll", BASELINE)
    return folder / "ner"


@pytest.fixture
def trained(trained_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainedTask:
    """A copy in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained_folder, "ner")
    return load_task("ner", device="cpu")


def test_train_evaluate_and_predict_commands(
    run, conll: Path, model: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [part for change in SMALL for part in ("--set", change)]
    command = ("train", "ner", "--train", conll, "--dev", conll, "-o", "run", *settings)
    result = run(*command, "-m", model, "--elmo", "both", "--layers", "top", "--seed", "3")
    assert result.code == 0, result.err
    assert "epoch   1  loss" in result.out
    assert "dev   f1" in result.out
    config = load_task("run", device="cpu").config
    assert (config.elmo.place, config.elmo.layers) == ("both", "top")
    assert config.training.seed == 3
    scores = json.loads(run("evaluate", "run", conll, "--json").out)
    assert scores["f1"] > 0.9
    assert "f1 " in run("evaluate", "run", conll).out
    Path("text.txt").write_text("  Ada  Lovelace lived in London.\n\nthe bank paid Ada .\n")
    result = run("predict", "run", "text.txt")
    first, blank, second = map(json.loads, result.out.splitlines())
    entity = first["entities"][0]
    assert 0.5 < entity.pop("probability") <= 1
    assert entity == {
        "label": "PER", "start": 0, "end": 2, "text": "Ada  Lovelace", "start_char": 2,
        "end_char": 15,
    }  # fmt: skip
    assert first["text"][first["entities"][1]["start_char"] :] == "London."
    assert blank == {"error": "expected text, got an empty line"}
    assert "lines without a prediction: 1" in result.err
    assert second["tags"] == ["O", "O", "O", "B-PER", "O"]


def test_predict_rejects_an_empty_file(run, trained: TrainedTask) -> None:
    Path("empty.txt").touch()
    assert_rejected(run("predict", "ner", "empty.txt"), "no predictions: empty.txt is empty")


def test_predict_and_evaluate_write_predictions_for_the_format_of_the_task(
    run, conll: Path, trained: TrainedTask
) -> None:
    """Oracle: the examples, which the model has learned by heart."""
    result = run("predict", "ner", conll, "--format", "task")
    lines = result.out
    assert "as text" not in result.err
    records = list(map(json.loads, lines.splitlines()))
    gold = read_entities(conll)
    assert [record["tokens"] for record in records] == [example.tokens for example in gold]
    assert [
        [LabeledSpan(e["label"], e["start"], e["end"]) for e in record["entities"]]
        for record in records
    ] == [example.entities for example in gold]
    run("evaluate", "ner", conll, "--predictions", "out.jsonl")
    assert Path("out.jsonl").read_text() == lines
    again = ("evaluate", "ner", conll, "--predictions", "out.jsonl")
    assert_rejected(run(*again), "exists already")
    Path("out.jsonl").write_text(lines.splitlines()[0])
    assert run(*again, "--overwrite").code == 0
    assert Path("out.jsonl").read_text() == lines
    for foreign in ("notes\n", '{"text": "a JSON file of somebody"}\n', "7\n", ""):
        Path("out.jsonl").write_text(foreign)
        assert_rejected(run(*again, "--overwrite"), "elmore did not write out.jsonl")
        assert Path("out.jsonl").read_text() == foreign
    assert_rejected(
        run("predict", "ner", conll, "--format", "task", "--tokenizer", "moses"),
        "--tokenizer and --language are for --format text only",
    )


def test_predict_says_that_it_reads_a_labeled_file_as_text(run, trained: TrainedTask) -> None:
    for name, is_labeled in {"a.conll": True, "a.jsonl.gz": True, "a.txt": False}.items():
        with gzip.open(name, "wt") if name.endswith(".gz") else Path(name).open("w") as file:
            file.write("Ada lived in London .\n")
        result = run("predict", "ner", name)
        assert (result.code, len(result.out.splitlines())) == (0, 1)
        hint = f"elmore: reading {name} as text, one example per line;"
        assert (hint in result.err) == is_labeled
        assert ("use --format task" in result.err) == is_labeled


def test_scores_of_each_label(run, conll: Path, trained: TrainedTask) -> None:
    report = json.loads(run("evaluate", "ner", conll, "--json").out)
    perfect = {"f1": 1.0, "precision": 1.0, "recall": 1.0}
    assert report["by_label"] == {
        "LOC": {**perfect, "support": 4},
        "PER": {**perfect, "support": 3},
    }
    assert report["confusion"] == {"LOC": {"LOC": 4, "PER": 0}, "PER": {"LOC": 0, "PER": 3}}
    lines = run("evaluate", "ner", conll).out.splitlines()
    assert lines[0] == "f1 100.00  precision 100.00  recall 100.00"
    assert lines[2].split() == ["precision", "recall", "f1", "support"]
    assert lines[3].split() == ["LOC", "100.00", "100.00", "100.00", "4"]


@pytest.mark.parametrize("name", ["my file.txt", "My News.TSV", "a b.conll", "a b.txt.gz"])
def test_mistyped_file_name_is_not_predicted_as_text(run, trained: TrainedTask, name: str) -> None:
    assert_rejected(run("predict", "ner", name), f"{name}: no such file. If this is the text")


@pytest.mark.parametrize("text", ["See notes.txt.", "Ada left.Then", "Ada left .", "a b.txt c"])
def test_text_is_predicted(run, trained: TrainedTask, text: str) -> None:
    assert json.loads(run("predict", "ner", text).out)["text"] == text


def test_labels_that_the_model_cannot_predict_are_reported(
    run, conll: Path, trained: TrainedTask, tmp_path: Path
) -> None:
    other, mixed, none = Path("other.conll"), Path("mixed.conll"), Path("none.conll")
    other.write_text(conll.read_text().replace("-PER", "-person").replace("-LOC", "-location"))
    mixed.write_text(conll.read_text().replace("-PER", "-person"))
    none.write_text("a O\nword O\n")
    assert_rejected(
        run("evaluate", "ner", other),
        "the model knows none of the labels in other.conll: location (4), person (3). It was "
        "trained with LOC, PER.",
    )
    assert_rejected(run("evaluate", "ner", none), "none.conll has no gold labels")
    note = "labels that are not in the training data and count as errors: person (3)"
    result = run("evaluate", "ner", mixed)
    assert result.code == 0
    assert note in result.err
    with pytest.warns(UserWarning, match="count as errors"):
        assert trained.evaluate(mixed)["recall"] == pytest.approx(4 / 7)
    data = ("train", "ner", "--train", conll, "-o", "x", "--no-elmo", "--set", "training.epochs=1")
    assert_rejected(run(*data, "--dev", none), "none.conll has no gold labels")
    assert_rejected(
        run(*data, "--dev", conll, "--test", other), "knows none of the labels in other.conll"
    )
    assert not Path("x").exists()
    result = run(*data, "--dev", mixed, "--json")
    assert note in result.err
    assert json.loads(result.out)["epochs"] == 1


def test_call_with_lists_and_iterables(trained: TrainedTask) -> None:
    """Oracle: calls with single texts. Iterables are read one batch at a time."""
    texts = ["Ada left London.", "Paris is far", "York left"]
    expected = list(map(trained, texts))
    for result, one in zip(trained(texts), expected, strict=True):
        assert result["tags"] == one["tags"]
        probabilities = ([e["probability"] for e in r["entities"]] for r in (result, one))
        assert next(probabilities) == pytest.approx(next(probabilities), abs=1e-5)
    read = []

    def endless() -> Iterator[str]:
        for i in count():
            read.append(i)
            yield texts[i % 3]

    results = trained(endless())
    assert not read
    assert [next(results)["tokens"] for _ in range(3)] == [one["tokens"] for one in expected]
    read.clear()
    assert next(trained.pipe(endless(), batch_size=2))["tokens"] == expected[0]["tokens"]
    assert read == [0, 1]
    results = trained.pipe(["Ada left", ""])
    assert next(results)["tokens"] == ["Ada", "left"]
    with pytest.raises(InputError, match="input 1: expected text, got an empty line"):
        next(results)
    assert trained([]) == []


def test_load_and_call_with_raw_text(trained: TrainedTask) -> None:
    ner = elmore.tasks.load("ner", device="cpu")
    answer = ner("Ada left London.")
    assert answer["tokens"] == ["Ada", "left", "London", "."]
    [person, place] = answer["entities"]
    assert (person["text"], place["text"]) == ("Ada", "London")
    assert (place["start_char"], place["end_char"]) == (9, 15)
    assert ner.predict(["Ada left London."]) == [
        {LabeledSpan(e["label"], e["start"], e["end"]): e["probability"] for e in (person, place)}
    ]
    assert ner(ner.parse("Ada left London.")) == answer
    assert json.loads(json.dumps(answer)) == answer
    with pytest.raises(InputError, match="expected text, got an empty line"):
        ner(" ")
    with pytest.raises(TypeError, match="expected a list of examples, got one string"):
        ner.predict("Ada left London.")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff", b"{}", b"null", b'{"task": "ner", "labels": {}}',
        b'{"task": "ner", "labels": {"tags": [1]}}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["task.json", "words.json"])
def test_damaged_files_of_a_task_are_named(
    run, conll: Path, trained: TrainedTask, name: str, content: bytes
) -> None:
    (Path("ner") / name).write_bytes(content)
    assert_rejected(run("evaluate", "ner", conll), name)


def test_damaged_contents_of_a_task_are_refused(run, conll: Path, trained: TrainedTask) -> None:
    """Changes one value of each file so that the file is still valid."""
    weights = load_file("ner/model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1e-3
    changes = {
        "model.safetensors": save(weights),
        "task.json": Path("ner/task.json").read_bytes().replace(b'"S-PER"', b'"S-PEQ"'),
        "words.json": Path("ner/words.json").read_bytes().replace(b'"London"', b'"Londoo"'),
        "config.toml": Path("ner/config.toml")
        .read_bytes()
        .replace(b"dropout = 0.", b"dropout = 0.1"),
    }
    for name, content in changes.items():
        original = (Path("ner") / name).read_bytes()
        assert content != original
        (Path("ner") / name).write_bytes(content)
        assert_rejected(run("evaluate", "ner", conll), "ner is damaged")
        (Path("ner") / name).write_bytes(original)
    assert run("evaluate", "ner", conll).code == 0


def test_terminal_output_brackets_spans(run, trained: TrainedTask, monkeypatch) -> None:
    Path("text.txt").write_text("[Ada] Lovelace lived in London .\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = run("predict", "ner", "text.txt", "--tokenizer", "whitespace").out
    assert "[Ada]" in shown  # brackets in the text are not markup
    assert "LOC" in shown
    assert " London]" in shown


def test_terminal_output_shows_brackets_across_tokens(
    run, trained: TrainedTask, monkeypatch
) -> None:
    """As markup, `[/b x]` closes a tag that is not open."""
    Path("text.txt").write_text("see [/b x] [red Ada ] now\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    result = run("predict", "ner", "text.txt", "--tokenizer", "whitespace")
    assert result.code == 0
    plain = re.sub(r"\x1b\[[\d;]*m", "", result.out)
    without_entities = re.sub(r"\[(PER|LOC) ", "", plain)
    assert "see [/b x]" in without_entities


def test_lines_before_one_that_cannot_be_read_are_predicted(run, trained: TrainedTask) -> None:
    Path("text.txt").write_text(f"Ada left .\nJack left .\n{'x' * 1_100_000}\n")
    result = run("predict", "ner", "text.txt")
    assert_rejected(result, "text.txt, line 3: more than 1,000,000 bytes without a line break")
    assert [json.loads(line)["text"] for line in result.out.splitlines()] == [
        "Ada left .", "Jack left ."
    ]  # fmt: skip


def test_line_that_is_not_utf_8_gets_an_error(run, trained: TrainedTask) -> None:
    Path("text.txt").write_bytes(b"Ada left .\nAd\xff left .\nAda left .\n")
    records = list(map(json.loads, run("predict", "ner", "text.txt").out.splitlines()))
    assert ["error" in record for record in records] == [False, True, False]
    assert "--replace-invalid" in records[1]["error"]
    lines = run("predict", "ner", "text.txt", "--replace-invalid").out.splitlines()
    assert json.loads(lines[1])["text"] == "Ad\ufffd left ."


@pytest.mark.parametrize("lines", [b"\n", b"\n\xff\n"])
def test_input_without_a_valid_line_is_rejected(run, trained: TrainedTask, lines: bytes) -> None:
    Path("text.txt").write_bytes(lines)
    result = run("predict", "ner", "text.txt")
    assert_rejected(result, "no predictions: all lines are blank or invalid")
    assert ["error" in json.loads(x) for x in result.out.splitlines()] == [True] * lines.count(
        b"\n"
    )


def test_invalid_lines_do_not_stop_the_others(
    run, trained: TrainedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lines.txt").write_text("bad\nAda left .\n")
    parse = type(trained.task).parse

    def reject_bad(self, line, tokenize):
        if line == "bad":
            raise InputError("invalid line")
        return parse(self, line, tokenize)

    monkeypatch.setattr(type(trained.task), "parse", reject_bad)
    lines = run("predict", "ner", "lines.txt").out.splitlines()
    assert json.loads(lines[0]) == {"error": "invalid line"}
    assert json.loads(lines[1])["tokens"] == ["Ada", "left", "."]
    with Path("lines.txt").open("rb") as file:
        terminal = SimpleNamespace(buffer=file, isatty=lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        result = run("predict", "ner")
    assert result.code == 0
    assert result.out.splitlines() == lines


def test_invalid_input_keeps_the_existing_run(
    run, conll: Path, model: Path, trained: TrainedTask
) -> None:
    before = {path.name for path in Path("ner").iterdir()}
    command = ("train", "ner", "--train", conll, "--dev", conll, "-o", "ner", "--overwrite")
    assert_rejected(run(*command, "--no-elmo", "--vectors", "glov.txt"), "glov.txt")
    assert_rejected(run(*command, "-m", "nowhere"), "nowhere: no such model")
    assert_rejected(run(*command, "--no-elmo", "--set", "tagger.hidden=0"), "tagger.hidden must be")
    assert_rejected(run(*command, "--no-elmo", "--device", "tpu"), "device must be")
    assert_rejected(
        run(*command, "-m", model, "--finetune-bilm"), "too few to fine-tune the biLM on"
    )
    assert {path.name for path in Path("ner").iterdir()} == before


def test_existing_run_is_kept_until_its_replacement_is_complete(
    conll: Path, trained: TrainedTask
) -> None:
    old = Path("ner/model.safetensors").read_bytes()

    other = [*BASELINE, "training.seed=5"]
    with pytest.raises(InterruptedRunError):
        train(Path("ner"), conll, other, overwrite=True, report=interrupt_at(2))
    assert Path(".ner.previous/model.safetensors").read_bytes() == old
    train(Path("ner"), conll, other, resume=True)
    assert not Path(".ner.previous").exists()
    assert Path("ner/model.safetensors").read_bytes() != old


def test_test_scores_come_from_the_test_file(conll: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.conll"
    other.write_text("Ada B-LOC\nleft O\n")  # the training data has Ada as PER
    summary = train(tmp_path / "run", conll, BASELINE, test=[other, conll])
    assert summary["scores"]["dev"]["f1"] > 0.95
    assert summary["scores"]["test"]["f1"] == 0
    assert summary["scores"][conll.name] == summary["scores"]["dev"]
    assert list(summary["by_label"]) == ["LOC", "PER"]  # of the first


def test_test_files_need_different_names(conll: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    copy = shutil.copy(conll, tmp_path / "a")
    with pytest.raises(InputError, match="several files would have the same name"):
        train(tmp_path / "run", conll, BASELINE, test=[conll, conll, copy])
    with pytest.raises(TypeError, match="test: expected a path"):
        train(tmp_path / "run", conll, BASELINE, test=[1])
    assert not (tmp_path / "run").exists()


def test_test_file_called_dev_does_not_replace_the_dev_scores(conll: Path, tmp_path: Path) -> None:
    copy = shutil.copy(conll, tmp_path / "dev")
    with pytest.raises(InputError, match=r"same name \(dev, test, dev\); rename a file"):
        train(tmp_path / "run", conll, BASELINE, test=[conll, copy])


def test_pipe_is_rejected_because_files_are_read_twice(conll: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: expected a regular file"):
        train(tmp_path / "run", conll, BASELINE, test=[tmp_path / "pipe"])


def test_relative_path_of_the_bilm_is_made_absolute(
    run, conll: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    changes = [*SMALL, f"elmo.model={model.name}", "training.epochs=1"]
    train(tmp_path / "run", conll, changes)
    monkeypatch.chdir(tmp_path)
    assert load_task("run", device="cpu").config.elmo.model == str(model)
    other = elmore.BiLM(replace(elmore.BiLMConfig.tiny(), dim=8))
    elmore.Embedder(other, device="cpu").save("other")
    result = run("evaluate", "run", conll, "-m", "other")
    assert_rejected(result, "was trained with another biLM")
    assert result.err.count("\n") == 1


@pytest.fixture
def other_model(tmp_path: Path) -> Path:
    """A biLM of the same shape as `model`, with other weights."""
    torch.manual_seed(1)
    bilm = elmore.BiLM(elmore.BiLMConfig.tiny())
    elmore.Embedder(bilm, device="cpu").save(tmp_path / "other")
    return tmp_path / "other"


def test_another_bilm_of_the_same_shape_is_refused(
    run, conll: Path, model: Path, other_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    train(folder, conll, [*SMALL, f"elmo.model={model}", "training.epochs=1"])
    message = "was trained with another biLM than"
    with pytest.raises(InputError, match=message):
        load_task(folder, device="cpu", bilm=str(other_model))
    assert_rejected(run("evaluate", folder, conll, "-m", other_model), message)
    assert_rejected(run("predict", folder, conll, "--model", other_model), message)
    # Equal weights may be stored elsewhere, and in another format.
    copy = tmp_path / "copy" / "weights.hdf5"
    assert run("convert", model, "-o", copy).code == 0
    assert run("evaluate", folder, conll, "--init-bilm", copy).code == 0
    # Older versions did not store the hash.
    facts = json.loads((folder / "task.json").read_text())
    del facts["bilm"]
    (folder / "task.json").write_text(json.dumps(facts))
    assert run("evaluate", folder, conll, "-m", other_model).code == 0


def test_error_for_a_moved_bilm_asks_for_its_new_path(
    run, conll: Path, model: Path, tmp_path: Path
) -> None:
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "run"
    shutil.copytree(model, old)
    train(folder, conll, [*SMALL, f"elmo.model={old}", "training.epochs=1"])
    old.rename(new)
    message = f"run needs the biLM that it was trained with, {old}, which does not exist"
    with pytest.raises(InputError, match=f"{message}.*pass its new path"):
        load_task(folder, device="cpu")
    assert_rejected(run("predict", folder, conll), message)
    assert run("predict", folder, conll, "-m", new).code == 0
    settings = folder / "config.toml"
    settings.write_text(settings.read_text().replace(str(old), "en-huge"))  # a model package
    with pytest.raises(InputError, match="en-huge, which is not installed; install its package"):
        load_task(folder, device="cpu")


def test_arguments_of_the_wrong_type_are_named(conll: Path, tmp_path: Path, model: Path) -> None:
    arguments = {"task": "ner", "output": tmp_path / "run", "train": conll, "dev": conll}
    for name, wrong, error, message in (
        ("train", None, TypeError, "train: expected a path or a list of paths, got None"),
        ("train", [7], TypeError, "train: expected a path, got 7"),
        ("train", [], InputError, "train: expected at least one file"),
        ("dev", None, TypeError, "dev: expected a path, got None"),
        ("output", None, TypeError, "output: expected a path, got None"),
        ("task", None, TypeError, "task: expected a name or a Task, got None"),
    ):
        with pytest.raises(error, match=message):
            train_task(**{**arguments, name: wrong})
    embedder = elmore.load(model)
    with pytest.raises(TypeError, match="bilm: expected the path of a biLM, got BiLM"):
        load_task(tmp_path / "run", bilm=embedder.bilm)
    with pytest.raises(TypeError, match="expected the folder of a trained task, got Embedder"):
        load_task(embedder)


def test_error_for_a_trained_task_as_a_model_says_how_to_use_it(
    run, conll: Path, trained: TrainedTask
) -> None:
    message = "ner is a trained task, not a biLM; use it with `elmore predict` or"
    with pytest.raises(InputError, match=f"{message} `elmore.tasks.load`"):
        elmore.load("ner")
    assert_rejected(run("info", "ner"), message)
    assert_rejected(run("embed", conll, "-o", "x.npz", "-m", "ner"), message)


def test_tokens_of_a_list_are_kept(trained: TrainedTask) -> None:
    """Oracle: the tokens themselves; as a text, they would be split."""
    tokens = ["Ada's", "friend", "can't", "leave", "London."]
    [result, text] = trained([tokens, "Ada left."])
    assert result["tokens"] == tokens
    assert result["text"] == " ".join(tokens)
    assert text["tokens"] == ["Ada", "left", "."]
    assert trained(" ".join(tokens))["tokens"] != tokens
    for wrong in (["Ada Lovelace", "left"], ["Ada", ""], ["Ada", 5]):
        with pytest.raises(InputError, match="input 0: expected tokens without spaces, got"):
            trained([wrong])
    with pytest.raises(InputError, match="expected text, got an empty line"):
        trained([[]])


def test_errors_for_arguments_of_the_wrong_type_say_what_is_expected(
    trained: TrainedTask,
) -> None:
    with pytest.raises(TypeError, match="expected texts or a list of them, got NoneType"):
        trained(None)
    with pytest.raises(TypeError, match=r"got list\. For several texts, call .* task\(texts\)"):
        trained.parse(["Ada left."])
    with pytest.raises(TypeError, match="example 0 is int; expected a string"):
        trained([5])
    with pytest.raises(InputError, match="input 0: expected the key text, got no keys"):
        trained([{}])
    with pytest.raises(TypeError, match="example 0 has 2 texts; ner expects 1: text"):
        trained.predict([("Ada left.", "London.")])
    with pytest.raises(TypeError, match="expected a list of examples, got NoneType"):
        trained.predict(None)
    with pytest.raises(TypeError, match="example 0 is str; expected a labeled example"):
        trained.evaluate(["Ada left."])
    with pytest.raises(TypeError, match="expected a NerConfig as config, got dict"):
        train_task("ner", "new", train="x", dev="x", config={"training": {"epochs": 1}})
    assert repr(trained) == "TrainedTask(ner, device=cpu)"
    # The tokenizer of a text can be chosen.
    example = trained.parse("Ada lived.", trained.tokenizer("whitespace"))
    assert example.tokens == ["Ada", "lived."]
    assert len(trained.predict([example])) == 1


def test_resumed_run_needs_the_same_bilm(
    conll: Path, model: Path, other_model: Path, tmp_path: Path
) -> None:
    bilm = tmp_path / "bilm"
    shutil.copytree(model, bilm)
    changes = [*SMALL, f"elmo.model={bilm}", "training.epochs=2"]
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", conll, changes, report=interrupt_at(1))
    shutil.rmtree(bilm)
    shutil.copytree(other_model, bilm)
    with pytest.raises(InputError, match=r"was started with other data \(bilm\)"):
        train(tmp_path / "run", conll, changes, resume=True)


def test_task_never_replaces_its_bilm_or_its_data(
    run, conll: Path, model: Path, tmp_path: Path
) -> None:
    bilm, data = tmp_path / "bilm", tmp_path / "data"
    shutil.copytree(model, bilm)
    data.mkdir()
    shutil.copy(conll, data)
    options = ("--dev", conll, "--overwrite", "--set", "training.epochs=1")
    command = ("train", "ner", "--train", conll, "-m", bilm, "-o", bilm)
    assert_rejected(run(*command, *options), "would replace the input")
    command = ("train", "ner", "--train", data / conll.name, "--no-elmo", "-o", data)
    assert_rejected(run(*command, *options), "would replace the input")
    assert elmore.load(bilm, device="cpu").embed([["a"]])
    assert (data / conll.name).read_text() == conll.read_text()


def test_run_in_a_locked_folder_is_refused(conll: Path, tmp_path: Path) -> None:
    with lock(tmp_path / "run"), pytest.raises(InputError, match="another process is writing to"):
        train(tmp_path / "run", conll, BASELINE)


def test_raw_text_is_tokenized_like_the_text_of_the_bilm(
    conll: Path, tmp_path: Path, bilm: elmore.BiLM
) -> None:
    """Oracle: the Korean rules of Moses, which keep Hangul words whole."""
    embedder = elmore.Embedder(bilm, device="cpu", tokenizer="moses", language="ko")
    embedder.save(tmp_path / "ko")
    train(tmp_path / "run", conll, [*SMALL, f"elmo.model={tmp_path / 'ko'}", "training.epochs=1"])
    ner = load_task(tmp_path / "run", device="cpu")
    text = "\uae40\uc5f0\uc544\ub294 \uc11c\uc6b8\uc5d0."
    assert ner(text)["tokens"] == ["\uae40\uc5f0\uc544\ub294", "\uc11c\uc6b8\uc5d0", "."]
    with pytest.warns(UserWarning, match="results may be worse"):
        english = ner.tokenizer(language="en")
    assert ner.parse(text, english).tokens != ner(text)["tokens"]


def test_invalid_commands_are_rejected(run, conll: Path, trained: TrainedTask) -> None:
    data = ("--train", conll, "--dev", conll)
    assert_rejected(run("train", "ner", *data, "-o", "ner", "--no-elmo"), "ner exists already")
    assert_rejected(
        run("train", "ner", *data, "-o", "x", "--no-elmo", "--elmo", "both"),
        "--no-elmo cannot be combined",
    )
    assert_rejected(
        run("train", "ner", *data, "-o", "x", "--no-elmo", "--set", "elmo.place=input"),
        "conflicting values of elmo.place: none by its option, input by --set",
    )
    assert_rejected(
        run("train", "ner", *data, "-o", "x", "-m", "nowhere"), "nowhere: no such model"
    )
    assert_rejected(run("train", "ner", *data, "-o", "ner", "--resume", "--no-elmo"), "is complete")
    assert_rejected(
        run("train", "ner", *data, "-o", "y", "--resume", "--no-elmo"), "no run to resume"
    )
    Path("empty.conll").write_text("\n\n")
    assert_rejected(
        run("train", "ner", "--train", conll, "--dev", "empty.conll", "-o", "x", "--no-elmo"),
        "no examples in empty.conll",
    )
    Path("plain.conll").write_text("a O\nword O\n")
    assert_rejected(
        run("train", "ner", "--train", "plain.conll", "--dev", conll, "-o", "z", "--no-elmo"),
        "no entities in the training examples",
    )
    assert not Path("z").exists()
    assert_rejected(run("evaluate", ".", conll), "holds no trained task")
    assert_rejected(run("predict", "ner", "missing.txt"), "missing.txt")
    Path("ner/model.safetensors").write_bytes(b"no")
    assert_rejected(run("evaluate", "ner", conll), "model.safetensors is missing or damaged")
    assert not Path("x").exists()


def test_bilm_is_finetuned_on_the_task_text(conll: Path, tmp_path: Path, model: Path) -> None:
    """Oracles: perplexity before and after; the weights of the original biLM."""
    conll.write_text(conll.read_text() + "".join(f"\nword{i} O\nend O\n" for i in range(60)))
    notes = []
    changes = [*SMALL, f"elmo.model={model}", "elmo.finetune=true", "training.epochs=1"]
    train(tmp_path / "run", conll, changes, report=notes.append)
    [note] = [record["note"] for record in notes if "perplexity" in record.get("note", "")]
    before, after = (
        float(x) for x in note.removeprefix("perplexity of the task's text ").split(" -> ")
    )
    assert after < before
    trained = load_task(tmp_path / "run", device="cpu")
    tuned = trained.encode.layers.embedder.bilm.state_dict()
    original = elmore.load(model).bilm.state_dict()
    assert any(not torch.equal(tuned[name], original[name]) for name in original)


def test_bilm_stays_frozen_and_is_not_saved(conll: Path, model: Path, tmp_path: Path) -> None:
    before = {k: v.clone() for k, v in elmore.load(model).bilm.state_dict().items()}
    train(tmp_path / "run", conll, [*SMALL, f"elmo.model={model}", "training.epochs=2"])
    after = elmore.load(model).bilm.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    weights = load_task(tmp_path / "run", device="cpu").model.state_dict()
    assert not [name for name in weights if "bilm" in name]


def test_baseline_has_no_precision(run, conll: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", conll, [*BASELINE, "training.epochs=1"])
    result = run("predict", tmp_path / "run", "Ada left .", "--precision", "int8")
    assert_rejected(result, "is a baseline, so it has no biLM to run in int8")


@pytest.mark.parametrize(
    ("option", "change"), [(["--seed", "1"], "training.seed=2"), (["-m", "x"], "elmo.model=y")]
)
def test_option_and_setting_must_agree(run, conll: Path, option: list[str], change: str) -> None:
    command = ["train", "ner", "--train", conll, "--dev", conll, "-o", "run"]
    name = change.partition("=")[0]
    assert_rejected(
        run(*command, *option, "--set", change),
        f"conflicting values of {name}: {option[1]} by its option",
    )


def test_precision_applies_to_the_bilm(run, conll: Path, model: Path, tmp_path: Path) -> None:
    """Oracle: the layers of an `Embedder` with that precision."""
    folder = tmp_path / "run"
    settings = [part for change in SMALL for part in ("--set", change)]
    command = ("train", "ner", "--train", conll, "--dev", conll, "-o", folder, "--device", "cpu")
    command = (*command, *settings, "--set", "training.epochs=1", "--precision", "bf16")
    assert run(*command, "-m", model).code == 0
    words = ["Ada", "left"]
    for precision in (None, "fp32", "int8"):
        layers = load_task(folder, device="cpu", precision=precision).encode.layers
        expected = elmore.load(model, device="cpu", precision=precision or "bf16").embed([words])
        np.testing.assert_array_equal(layers([[words]])[0].numpy(), expected[0])
    assert_rejected(run(*command, "--no-elmo"), "--no-elmo cannot be combined")
