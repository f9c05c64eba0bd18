"""Pre-training runs. Oracle: an uninterrupted run."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import elmore
from elmore.checkpoint.language_model import read_language_model
from elmore.errors import InputError
from elmore.pretrain.config import PretrainConfig
from elmore.pretrain.loop import DivergedError
from elmore.pretrain.run import pretrain
from elmore.training.checkpoints import checkpoint_files
from elmore.training.interruption import InterruptedRunError
from tests.pretrain.conftest import SETTINGS


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": value
        for name in ("model", "softmax")
        for key, value in load_file(folder / f"{name}.safetensors").items()
    }


def assert_equal_runs(a: Path, b: Path) -> None:
    """Compare weights and metrics, except times, bit for bit."""
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    timed = {"seconds", "tokens_per_second"}
    metrics = [
        [
            {k: v for k, v in json.loads(line).items() if k not in timed}
            for line in (folder / "metrics.jsonl").read_text().splitlines()
        ]
        for folder in (a, b)
    ]
    assert metrics[0] == metrics[1]


def test_run_lowers_perplexity_and_writes_a_model(
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


def test_repeated_run_is_bit_equal(text: Path, tmp_path: Path, config: PretrainConfig) -> None:
    for name in ("a", "b"):
        pretrain([text], tmp_path / name, config, cache=tmp_path / "c", workers=1, device="cpu")
    assert_equal_runs(tmp_path / "a", tmp_path / "b")


def test_gradient_accumulation_gives_the_same_weights(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    still = replace(config, bilm=replace(config.bilm, dropout=0.0))
    for name, parts in (("a", 1), ("b", 2)):
        split = replace(still, training=replace(still.training, accumulate=parts))
        pretrain([text], tmp_path / name, split, cache=tmp_path / "c", workers=1, device="cpu")
    first, second = weights(tmp_path / "a"), weights(tmp_path / "b")
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulated_gradients_are_a_mean(
    text: Path, tmp_path: Path, config: PretrainConfig, parts: int
) -> None:
    """Adagrad without clipping: its first steps are proportional to the gradient."""
    whole = replace(
        config,
        bilm=replace(config.bilm, dropout=0.0),
        training=replace(config.training, optimizer="adagrad", lr=0.2, clip_norm=1e9, epochs=0.5),
        run=replace(config.run, log_steps=1),
    )
    split = replace(whole, training=replace(whole.training, accumulate=parts))
    records: dict[str, list[dict]] = {"whole": [], "split": []}
    for name, settings in (("whole", whole), ("split", split)):
        pretrain(
            [text], tmp_path / name, settings, cache=tmp_path / "c", workers=1, device="cpu",
            report=records[name].append,
        )  # fmt: skip
    norms, losses = (
        [[r[key] for r in records[name] if key in r] for name in ("whole", "split")]
        for key in ("grad_norm", "loss")
    )
    assert len(norms[0]) > 10
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    first, second = weights(tmp_path / "whole"), weights(tmp_path / "split")
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=1e-5, rtol=1e-4)


COMMAND = """
import sys, elmore.pretrain.loop as loop, os
from elmore.cli import main
stop = int(os.environ.get("STOP_AT", -1))
save = int(os.environ.get("SAVE_AT", -1))
real = loop.Pretraining._train_step
def step(self, *args):
    if self.step == save:
        self.save()
    if self.step == stop:
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    return real(self, *args)
loop.Pretraining._train_step = step
sys.argv[0] = "elmore"
main()
"""


def command(text: Path, folder: Path, *more: str, **env: object) -> subprocess.CompletedProcess:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    args = [
        sys.executable, "-c", COMMAND, "pretrain", str(text), "-o", str(folder), "--size", "tiny",
        "--cache", str(folder.parent / "c"), "--workers", "1", "--device", "cpu", *settings, *more,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in env.items()}}
    return subprocess.run(args, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("signum", "env"),
    [(signal.SIGTERM, {}), (signal.SIGKILL, {"SAVE_AT": 17})],
)
def test_killed_run_resumes_bit_equal(text: Path, tmp_path: Path, signum: int, env: dict) -> None:
    """Killed by a real signal in one process, and resumed in another."""
    assert command(text, tmp_path / "whole").returncode == 0
    killed = command(text, tmp_path / "killed", STOP_AT=23, SIGNAL=int(signum), **env)
    assert killed.returncode == (130 if signum == signal.SIGTERM else -9), killed.stderr
    assert checkpoint_files(tmp_path / "killed" / "checkpoints")
    assert not (tmp_path / "killed" / "config.json").exists()
    refused = command(text, tmp_path / "killed")
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    resumed = command(text, tmp_path / "killed", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert f"resuming from step {env.get('SAVE_AT', 24)}" in resumed.stdout
    assert_equal_runs(tmp_path / "whole", tmp_path / "killed")


def interrupted_run(text: Path, folder: Path, config: PretrainConfig) -> None:
    """Write a checkpoint in every step and stop at step 15."""
    eager = replace(config, run=replace(config.run, checkpoint_minutes=0.0))

    def report(record: dict) -> None:
        if record.get("step") == 15:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRunError, match="resume the run to continue"):
        pretrain(
            [text], folder, eager, cache=folder.parent / "c", workers=1, device="cpu", report=report
        )


def test_damaged_checkpoint_falls_back_to_the_previous_one(
    text: Path, tmp_path: Path, config: PretrainConfig
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
    pretrain([text], tmp_path / "whole", config, cache=tmp_path / "c", workers=1, device="cpu")
    assert_equal_runs(tmp_path / "whole", tmp_path / "run")


def test_resuming_with_other_settings_is_rejected(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    interrupted_run(text, tmp_path / "run", config)
    other = replace(config, training=replace(config.training, lr=0.5))
    with pytest.raises(InputError, match="was started with other settings"):
        pretrain(
            [text], tmp_path / "run", other, cache=tmp_path / "c", workers=1, device="cpu",
            resume=True,
        )  # fmt: skip


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
    patient = replace(
        config,
        training=replace(config.training, epochs=6.0, lr=0.3),
        run=replace(config.run, patience=2, evaluations=20),
    )
    interrupted_run(text, tmp_path / "run", patient)
    for name, resume in (("run", True), ("whole", False)):
        summary = pretrain(
            [text], tmp_path / name, patient, cache=tmp_path / "c", workers=1, device="cpu",
            resume=resume,
        )  # fmt: skip
    assert_equal_runs(tmp_path / "whole", tmp_path / "run")
    records = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    actual = [r["heldout"]["average"] for r in records if r.get("heldout")]
    assert summary["heldout"]["average"] == pytest.approx(min(actual), rel=1e-5)


def test_signal_in_the_last_step_changes_nothing(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    def report(record: dict) -> None:
        if record.get("progress") == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    summary = pretrain(
        [text], tmp_path / "run", config, cache=tmp_path / "c", workers=1, device="cpu",
        report=report,
    )  # fmt: skip
    assert summary["heldout"]


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
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRunError):
        run(overwrite=True, report=interrupt)
    assert (tmp_path / ".run.previous" / "model.safetensors").read_bytes() == old
    run(resume=True)
    assert not (tmp_path / ".run.previous").exists()
    assert (tmp_path / "run.previous").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("precious")
    with pytest.raises(InputError, match="is not a run of elmore"):
        pretrain([text], tmp_path / "home", config, overwrite=True, cache=tmp_path / "c")
    assert (tmp_path / "home" / "letter.txt").exists()


def test_nan_gradient_is_never_saved(text: Path, tmp_path: Path, config: PretrainConfig) -> None:
    wild = replace(
        config,
        training=replace(config.training, loss_scale=1e39),
        run=replace(config.run, checkpoint_minutes=0.0),
    )
    with pytest.raises(DivergedError, match="No checkpoint yet"):
        pretrain([text], tmp_path / "run", wild, cache=tmp_path / "c", workers=1, device="cpu")


def test_nan_loss_stops_and_names_the_last_good_checkpoint(
    text: Path, tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from elmore.pretrain import loop

    real = loop.Pretraining._train_step

    def poisoned(self, *args):
        if self.step == 12:
            with torch.no_grad():
                self.model.softmax.bias.fill_(torch.nan)
        return real(self, *args)

    monkeypatch.setattr(loop.Pretraining, "_train_step", poisoned)
    eager = replace(config, run=replace(config.run, checkpoint_minutes=0.0))
    with pytest.raises(DivergedError, match=r"NaN or infinite.*step-000000012.safetensors"):
        pretrain([text], tmp_path / "run", eager, cache=tmp_path / "c", workers=1, device="cpu")


def test_time_limit_finishes_the_schedule(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    endless = replace(config, training=replace(config.training, epochs=10_000.0))
    records = []
    began = time.monotonic()
    pretrain(
        [text], tmp_path / "run", endless, cache=tmp_path / "c", workers=1, device="cpu",
        max_minutes=2 / 60, report=records.append,
    )  # fmt: skip
    assert time.monotonic() - began < 30
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
    with pytest.raises(InputError, match="holds no sentences"):
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
    assert "2 of the 3 held-out sentences are in the training text too" in notes[0]
