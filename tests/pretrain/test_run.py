"""Pre-training runs. Oracles: an uninterrupted run; a run without gradient accumulation."""

import json
import os
import signal
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import elmore
from elmore.bilm.config import BiLMConfig
from elmore.checkpoint.hdf5 import write_hdf5
from elmore.checkpoint.language_model import read_language_model
from elmore.errors import InputError
from elmore.pretrain import loop
from elmore.pretrain.config import PretrainConfig, read_config
from elmore.pretrain.run import pretrain
from elmore.signals import InterruptedRunError
from elmore.training.checkpoints import checkpoint_files
from tests.pretrain.conftest import SETTINGS, kill_in_step, start_pretraining


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": value
        for name in ("model", "softmax")
        for key, value in load_file(folder / f"{name}.safetensors").items()
    }


def assert_equal_runs(a: Path, b: Path) -> None:
    """Compare weights and metrics bit for bit, except for times."""
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    times = {"seconds", "tokens_per_second"}
    metrics = [
        [
            {k: v for k, v in json.loads(line).items() if k not in times}
            for line in (folder / "metrics.jsonl").read_text().splitlines()
        ]
        for folder in (a, b)
    ]
    assert metrics[0] == metrics[1]


@pytest.mark.usefixtures("plots")
def test_run_lowers_heldout_perplexity_and_writes_a_model(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    records = []
    summary = pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
        report=records.append,
    )  # fmt: skip
    heldout = [r["heldout"]["average"] for r in records if r.get("heldout")]
    assert heldout[-1] < heldout[0] < 20
    assert summary["heldout"]["average"] == heldout[-1]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.json", "config.toml", "loss.png", "metrics.jsonl", "model.safetensors",
        "softmax.safetensors", "summary.json", "vocab.txt",
    }  # fmt: skip
    elmo = elmore.load(tmp_path / "run")
    assert elmo.embed([["the", "cat"]])[0].shape == (3, 2, 32)
    assert elmo.provenance["steps"] == summary["steps"]
    saved = read_language_model(tmp_path / "run")
    assert len(saved.vocabulary) == summary["vocabulary"]


def test_broken_matplotlib_costs_only_the_plot(
    text: Path, tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plot(*_: object) -> None:
        raise ValueError("Key backend: 'nonsense' is not a valid value")  # as with MPLBACKEND

    monkeypatch.setattr("elmore.pretrain.run.plot_pretraining", plot)
    config = replace(config, training=replace(config.training, epochs=1))
    records: list[dict[str, Any]] = []
    pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
        report=records.append,
    )  # fmt: skip
    assert "no plot of the loss: Key backend: 'nonsense'" in records[-1]["note"]
    assert (tmp_path / "run" / "config.json").exists()


def test_model_survives_a_round_trip_through_hdf5(
    text: Path, tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the hash of the weights, to which a trained task is pinned."""
    new_model = loop.new_model

    def long_trained_model(*args: Any) -> Any:
        model, vocabulary = new_model(*args)
        model.bilm.forward_lstms[0].input.bias.data.normal_()  # initially 1 for the forget gate
        return model, vocabulary

    monkeypatch.setattr(loop, "new_model", long_trained_model)
    run, converted = tmp_path / "run", tmp_path / "converted"
    pretrain([text], run, config, cache=tmp_path / "c", workers=1, device="cpu")
    converted.mkdir()
    write_hdf5(elmore.load(run).bilm, converted / "weights.hdf5", converted / "options.json")
    assert elmore.load(converted).weights_hash == elmore.load(run).weights_hash
    options = json.loads((converted / "options.json").read_text())
    assert "dropout" not in options  # as in released ones
    bilm = elmore.BiLM(replace(BiLMConfig.tiny(), dropout=0.3))
    write_hdf5(bilm, converted / "weights.hdf5", converted / "options.json")
    assert elmore.load(converted).bilm.config.dropout == 0.3


def test_repeated_run_is_bit_identical(
    text: Path, tmp_path: Path, config: PretrainConfig, complete_run: Path
) -> None:
    pretrain([text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu")
    assert_equal_runs(tmp_path / "run", complete_run)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_accumulated_gradients_are_the_mean_over_the_batch(
    text: Path, tmp_path: Path, config: PretrainConfig, accumulate: int
) -> None:
    """Without clipping, the first steps of Adagrad are proportional to the gradient."""
    plain = replace(
        config,
        bilm=replace(config.bilm, dropout=0.0),
        training=replace(config.training, optimizer="adagrad", lr=0.2, clip_norm=1e9, epochs=0.8),
        run=replace(config.run, log_steps=1),
    )
    accumulated = replace(plain, training=replace(plain.training, accumulate=accumulate))
    records: dict[str, list[dict]] = {"plain": [], "accumulated": []}
    for name, settings in (("plain", plain), ("accumulated", accumulated)):
        pretrain(
            [text], tmp_path / name, settings, cache=tmp_path / "c", workers=1, device="cpu",
            report=records[name].append,
        )  # fmt: skip
    norms, losses = (
        [[r[key] for r in records[name] if key in r] for name in ("plain", "accumulated")]
        for key in ("grad_norm", "loss")
    )
    assert len(norms[0]) > 10
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    first, second = weights(tmp_path / "plain"), weights(tmp_path / "accumulated")
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("signum", "save_at"), [(signal.SIGTERM, None), (signal.SIGHUP, None), (signal.SIGKILL, 17)]
)
def test_resumed_run_is_bit_identical_to_an_uninterrupted_one(
    text: Path,
    tmp_path: Path,
    config: PretrainConfig,
    complete_run: Path,
    signum: int,
    save_at: int | None,
) -> None:
    """The run is killed by a real signal in another process."""
    notes: list[dict] = []
    common = {"cache": tmp_path / "c", "workers": 1, "device": "cpu", "report": notes.append}
    kill = partial(kill_in_step, 23, signum, save_at=save_at)
    killed = start_pretraining(text, tmp_path / "killed", SETTINGS, prepare=kill).wait()
    assert killed.code == (-9 if signum == signal.SIGKILL else 130), killed.err
    assert checkpoint_files(tmp_path / "killed" / "checkpoints")
    assert not (tmp_path / "killed" / "config.json").exists()
    with pytest.raises(InputError, match="exists already"):
        pretrain([text], tmp_path / "killed", config, **common)
    pretrain([text], tmp_path / "killed", config, resume=True, **common)
    assert {"note": f"resuming from step {save_at or 24}"} in notes
    assert_equal_runs(complete_run, tmp_path / "killed")


def interrupted_run(text: Path, folder: Path, config: PretrainConfig) -> None:
    """Write a checkpoint in every step and interrupt the run at step 15."""
    checkpoint_every_step = replace(config, run=replace(config.run, checkpoint_minutes=0.0))

    def report(record: dict) -> None:
        if record.get("step") == 15:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptedRunError, match="resume the run to continue"):
        pretrain(
            [text],
            folder,
            checkpoint_every_step,
            cache=folder.parent / "c",
            workers=1,
            device="cpu",
            report=report,
        )


def test_damaged_checkpoint_falls_back_to_the_previous_one(
    text: Path, tmp_path: Path, config: PretrainConfig, complete_run: Path
) -> None:
    interrupted_run(text, tmp_path / "run", config)
    older, newest = checkpoint_files(tmp_path / "run" / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:-100])
    notes = []
    pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
        resume=True, report=lambda r: notes.append(r["note"]) if "note" in r else None,
    )  # fmt: skip
    assert newest.name in notes[0]
    assert "trying the previous checkpoint" in notes[0]
    assert notes[1] == f"resuming from step {int(older.stem.split('-')[1])}"
    assert_equal_runs(complete_run, tmp_path / "run")


def test_speed_of_a_resumed_run_does_not_count_earlier_steps(
    text: Path, tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: with a clock that advances one second per step, the speed is the tokens per step."""
    now = 0
    train_step = loop.Pretraining._train_step

    def timed_step(self: loop.Pretraining, *args: Any) -> None:
        nonlocal now
        now += 1
        train_step(self, *args)

    monkeypatch.setattr(loop.Pretraining, "_train_step", timed_step)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now))
    records: list[dict] = []
    interrupted_run(text, tmp_path / "run", config)  # between two lines of metrics
    pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
        resume=True, report=records.append,
    )  # fmt: skip
    speeds = [record["tokens_per_second"] for record in records if "loss" in record]
    assert len(speeds) > 1
    assert speeds == [config.training.streams * config.training.window] * len(speeds)


def test_second_run_in_the_same_folder_is_refused(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    """Oracle: an undisturbed run. The lock is that of another process: it belongs to a file."""

    def run(name: str, **more: object) -> None:
        pretrain(
            [text], tmp_path / name, config, cache=tmp_path / "c", workers=1, device="cpu", **more
        )

    def start_again(record: dict) -> None:
        for options in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(InputError, match="another process is writing to"):
                run("run", **options)

    run("run", report=start_again)
    run("undisturbed")
    assert_equal_runs(tmp_path / "undisturbed", tmp_path / "run")
    assert not list(tmp_path.glob(".*.lock"))


def test_temporary_files_of_a_killed_run_are_removed(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    interrupted_run(text, tmp_path / "run", config)
    leftovers = [
        tmp_path / "run" / "checkpoints" / ".step-000000016.safetensors.0123abcd.tmp",
        tmp_path / "run" / ".metrics.jsonl.0123abcd.tmp",
        tmp_path / ".run.0123abcd.tmp",
    ]
    for path in leftovers:
        path.touch()
    pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu", resume=True
    )
    assert not any(path.exists() for path in leftovers)


def test_run_never_replaces_its_input(text: Path, tmp_path: Path, config: PretrainConfig) -> None:
    with pytest.raises(InputError, match="would replace the input"):
        pretrain([text], text.parent, config, cache=tmp_path / "c", overwrite=True)
    assert text.exists()


def test_resuming_with_other_settings_is_rejected(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    interrupted_run(text, tmp_path / "run", config)
    other = replace(config, training=replace(config.training, lr=0.5))
    message = r"was started with other settings: training.lr was 0.01, not 0.5\. Resume it with"
    with pytest.raises(InputError, match=message):
        pretrain(
            [text], tmp_path / "run", other, cache=tmp_path / "c", workers=1, device="cpu",
            resume=True,
        )  # fmt: skip


def test_resuming_may_change_only_settings_that_do_not_affect_the_weights(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    interrupted_run(text, tmp_path / "run", config)
    resume = partial(
        pretrain, [text], tmp_path / "run", cache=tmp_path / "c", workers=1, device="cpu",
        resume=True,
    )  # fmt: skip
    for name in ("evaluations", "max_heldout"):
        other = replace(config, run=replace(config.run, **{name: 7}))
        with pytest.raises(InputError, match=f"other settings: run.{name} was"):
            resume(config=other)
    notes: list[str] = []
    other = replace(config, run=replace(config.run, log_steps=3, checkpoint_minutes=1.0))
    resume(config=other, max_minutes=60, report=lambda record: notes.append(record.get("note", "")))
    assert "the time limit has changed, and with it the learning-rate schedule" in notes


@pytest.mark.parametrize("change", ["training.seed=9223372036854775808", "training.epochs=1e300"])
def test_numbers_out_of_range_are_rejected(change: str) -> None:
    with pytest.raises(InputError, match=r"must be at most"):
        read_config(size="tiny", changes=[change])


def test_resuming_with_other_text_is_rejected(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    interrupted_run(text, tmp_path / "run", config)
    text.write_text(text.read_text() + "\none more sentence .\n")
    with pytest.raises(InputError, match=r"belongs to another run: its corpus was"):
        pretrain(
            [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
            resume=True,
        )  # fmt: skip


def test_resuming_with_other_heldout_text_is_rejected(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    interrupted_run(text, tmp_path / "run", config)
    (tmp_path / "heldout.txt").write_text("the cat likes him .\n")
    with pytest.raises(InputError, match=r"its (sentences|heldout) was"):
        pretrain(
            [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
            resume=True, heldout=tmp_path / "heldout.txt",
        )  # fmt: skip


def test_early_stopping_survives_an_interruption(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    early_stopping = replace(
        config,
        training=replace(config.training, epochs=6.0, lr=0.3),
        run=replace(config.run, patience=2, evaluations=20),
    )
    interrupted_run(text, tmp_path / "run", early_stopping)
    for name, resume in (("run", True), ("uninterrupted", False)):
        summary = pretrain(
            [text], tmp_path / name, early_stopping, cache=tmp_path / "c", workers=1, device="cpu",
            resume=resume,
        )  # fmt: skip
    assert_equal_runs(tmp_path / "uninterrupted", tmp_path / "run")
    records = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    perplexities = [r["heldout"]["average"] for r in records if r.get("heldout")]
    assert summary["heldout"]["average"] == pytest.approx(min(perplexities), rel=1e-5)


def test_signal_in_the_last_step_does_not_interrupt_the_run(
    text: Path, tmp_path: Path, config: PretrainConfig, complete_run: Path
) -> None:
    def report(record: dict) -> None:
        if record.get("progress") == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    summary = pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
        report=report,
    )  # fmt: skip
    assert summary["heldout"]
    assert_equal_runs(tmp_path / "run", complete_run)


def test_existing_run_is_kept_until_its_replacement_is_complete(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    def run(**more: object) -> None:
        pretrain(
            [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu", **more
        )

    (tmp_path / "run.previous").mkdir()  # not written by elmore
    run()
    old = (tmp_path / "run" / "model.safetensors").read_bytes()

    def interrupt(record: dict) -> None:
        if record.get("step") == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptedRunError):
        run(overwrite=True, report=interrupt)
    assert (tmp_path / ".run.previous" / "model.safetensors").read_bytes() == old
    run(resume=True)
    assert not (tmp_path / ".run.previous").exists()
    assert (tmp_path / "run.previous").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("precious")
    with pytest.raises(InputError, match="so elmore did not write it"):
        pretrain([text], tmp_path / "home", config, overwrite=True, cache=tmp_path / "c")
    assert (tmp_path / "home" / "letter.txt").exists()


def test_nan_gradient_is_never_saved(text: Path, tmp_path: Path, config: PretrainConfig) -> None:
    overflowing = replace(
        config,
        training=replace(config.training, loss_scale=1e39),
        run=replace(config.run, checkpoint_minutes=0.0),
    )
    with pytest.raises(InputError, match="No checkpoint yet"):
        pretrain(
            [text], tmp_path / "run", overflowing, cache=tmp_path / "c", workers=1, device="cpu"
        )
    assert not checkpoint_files(tmp_path / "run" / "checkpoints")


def test_nan_loss_error_names_the_last_good_checkpoint(
    text: Path, tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_step = loop.Pretraining._train_step

    def step_with_nan_weights(self, *args):
        if self.step == 12:
            with torch.no_grad():
                self.model.softmax.bias.fill_(torch.nan)
        return train_step(self, *args)

    monkeypatch.setattr(loop.Pretraining, "_train_step", step_with_nan_weights)
    config = replace(config, run=replace(config.run, checkpoint_minutes=0.0))
    with pytest.raises(InputError, match=r"NaN or infinite.*step-000000012.safetensors"):
        pretrain([text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu")


def test_time_limit_fits_the_learning_rate_schedule(
    text: Path, tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(step=0.05)  # seconds: independent of the speed of the machine
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    many_epochs = replace(config, training=replace(config.training, epochs=10_000.0))
    records = []
    pretrain(
        [text], tmp_path / "run", many_epochs, cache=tmp_path / "c", workers=1, device="cpu",
        max_minutes=2 / 60, report=records.append,
    )  # fmt: skip
    rates = [r["lr"] for r in records if "lr" in r]
    assert rates[-1] < 0.1 * max(rates)
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_invalid_requests_are_rejected(text: Path, tmp_path: Path, config: PretrainConfig) -> None:
    def run(files: list[Path], **more: object) -> None:
        pretrain(files, tmp_path / "run", config, cache=tmp_path / "c", workers=1, **more)

    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    with pytest.raises(InputError, match="at least one text file"):
        run([])
    with pytest.raises(InputError, match="no words in"):
        run([tmp_path / "empty.txt"])
    with pytest.raises(InputError, match=r"training.streams=4 needs at least 4 sentences"):
        run([tmp_path / "short.txt"])
    with pytest.raises(InputError, match="no run to resume"):
        run([text], resume=True)
    with pytest.raises(InputError, match="has no sentences"):
        run([text], heldout=tmp_path / "empty.txt")


def test_overlap_of_heldout_and_training_text_is_reported(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    (tmp_path / "heldout.txt").write_text(
        "the cat sees it .\nthe cat sees him .\na dog likes us .\n"
    )
    notes = []
    pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
        heldout=tmp_path / "heldout.txt", report=lambda r: notes.append(r.get("note")),
    )  # fmt: skip
    assert "2 of the 3 held-out sentences are also in the training text" in notes[0]


@pytest.mark.parametrize(
    ("heldout", "epochs", "expected"),
    [
        (0.05, 1, ["only {tokens} tokens are held out", "the run has only {steps} steps"]),
        (0.0, 1, ["the run has only {steps} steps"]),
        (1e-6, 1, ["no sentences are held out", "the run has only {steps} steps"]),
        (0.0, 1000, []),
    ],
)
def test_little_text_is_mentioned(
    text: Path,
    tmp_path: Path,
    config: PretrainConfig,
    monkeypatch: pytest.MonkeyPatch,
    heldout: float,
    epochs: int,
    expected: list[str],
) -> None:
    """Oracle: the numbers of tokens and steps of the run, which is stopped at its start."""
    notes: list[str] = []
    numbers: dict[str, int] = {}

    def stop(run: loop.Pretraining, *_: object, **__: object) -> None:
        numbers.update(steps=run.total_steps, tokens=sum(map(len, run.heldout)))
        raise KeyboardInterrupt

    monkeypatch.setattr("elmore.pretrain.run.train", stop)
    config = replace(
        config,
        run=replace(config.run, heldout=heldout),
        training=replace(config.training, epochs=epochs),
    )
    with pytest.raises(InterruptedRunError):
        pretrain(
            [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
            report=lambda r: notes.append(r["note"]),
        )  # fmt: skip
    starts = [text.format(**numbers) for text in expected]
    assert len(notes) == len(starts)
    assert all(note.startswith(start) for note, start in zip(notes, starts, strict=True))
