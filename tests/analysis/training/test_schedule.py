"""Scheduler. Oracle: a trainer that logs its epochs, processes and times, without training."""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elmore.analysis.training import schedule
from elmore.analysis.training.schedule import Job, run_jobs
from elmore.errors import InputError

TRAINER = textwrap.dedent("""
    import json, os, shutil, signal, sys, time
    from pathlib import Path

    folder, epochs, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    if mode != "resume":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.toml").touch()
    log = folder / "metrics.jsonl"
    done = len(log.read_text().splitlines()) if log.exists() else 0
    for epoch in range(done, epochs):
        start = time.monotonic()
        time.sleep(0.05)
        times = {"start": start, "end": time.monotonic(), "seconds": 0.05, "dev_seconds": 0}
        with log.open("a") as file:
            file.write(json.dumps({"epoch": epoch, "pid": os.getpid(), **times}) + "\\n")
        if stop:
            sys.exit("interrupted")
    (folder / "task.json").touch()
""")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_POLL", 0.01)
    monkeypatch.setattr(schedule, "_BACKGROUND_POLL", 0.05)
    monkeypatch.setattr(schedule, "_RESERVED", 0.5)
    monkeypatch.setattr(schedule, "_GRACE", 2.0)
    monkeypatch.setattr(schedule, "_DELAY", 0.2)


class Log:
    """Epochs of finished jobs, by name."""

    def __init__(self) -> None:
        self.epochs: dict[str, list[dict]] = {}

    def job(self, name: str, epochs: int = 2, code: str = TRAINER) -> Job:
        def command(folder: Path, resume: bool) -> list[str]:
            mode = "resume" if resume else "start"
            return [sys.executable, "-S", "-E", "-c", code, str(folder), str(epochs), mode]

        def finish(folder: Path) -> str:
            lines = (folder / "metrics.jsonl").read_text().splitlines()
            self.epochs[name] = list(map(json.loads, lines))
            return "finished"

        return Job(name=name, command=command, finish=finish, identity=lambda: "")


@pytest.fixture
def log() -> Log:
    return Log()


def test_jobs_run_side_by_side(log: Log, tmp_path: Path) -> None:
    messages: list[str] = []
    jobs = [log.job(name, epochs=8) for name in "abcd"]
    assert run_jobs(jobs, tmp_path, at_once=2, show=messages.append) == {}
    assert sorted(messages) == [f"{name}: finished" for name in "abcd"]
    spans = {name: (e[0]["start"], e[-1]["end"]) for name, e in log.epochs.items()}
    overlaps = [
        sum(start <= moment < end for start, end in spans.values())
        for moment in (start for start, _ in spans.values())
    ]
    assert max(overlaps) == 2
    starts = {name: start for name, (start, _) in spans.items()}
    assert max(starts["a"], starts["b"]) < min(starts["c"], starts["d"])


@pytest.mark.parametrize("code", [1, 2])
def test_failed_job_does_not_stop_the_others(log: Log, tmp_path: Path, code: int) -> None:
    """The exit code is 2 for invalid input and also if the GPU has not enough memory."""
    messages: list[str] = []
    broken = f"print('epoch 1', 'elmore: no memory', '', sep=chr(10)); raise SystemExit({code})"
    jobs = [log.job("bad", code=broken), log.job("good")]
    problems = run_jobs(jobs, tmp_path, at_once=2, show=messages.append)
    assert problems == {"bad": f"failed: no memory (exit code {code})"}
    assert list(log.epochs) == ["good"]
    assert messages.count(f"bad: failed: no memory (exit code {code})") == 2
    assert (tmp_path / "bad.log").exists()
    assert not (tmp_path / "good.log").exists()


def test_killed_job_is_reported_with_the_signal(log: Log, tmp_path: Path) -> None:
    killed = "import os, signal; print('epoch 1', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    problems = run_jobs([log.job("killed", code=killed)], tmp_path, at_once=1)
    assert problems == {"killed": "failed: killed by SIGKILL, perhaps because the memory was full"}


def test_second_attempt_waits_for_memory(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: a job that fails while another one is running."""
    monkeypatch.setattr(schedule, "_DELAY", 60.0)
    other = tmp_path / "other"
    check = f"if not Path({str(other / 'task.json')!r}).exists(): sys.exit('out of memory')"
    code = TRAINER.replace("stop = []", f"stop = []\n{check}")
    jobs = [log.job("other", epochs=20), log.job("large", code=code)]
    start = time.monotonic()
    assert run_jobs(jobs, tmp_path, at_once=2) == {}
    assert time.monotonic() - start < 30
    assert list(log.epochs) == ["other", "large"]


def test_error_after_training_does_not_stop_the_others(log: Log, tmp_path: Path) -> None:
    def finish(folder: Path) -> str:
        raise error

    for error, started in ((InputError("no metrics"), 2), (OSError(28, "disk full"), 1)):
        folder = tmp_path / type(error).__name__
        bad = replace(log.job("bad", epochs=1), finish=finish)
        problems = run_jobs([bad, log.job("good")], folder, at_once=2)
        assert problems == {"bad": f"failed: {error}"}
        assert log.epochs.pop("good")
        before = (folder / "bad" / "metrics.jsonl").stat().st_mtime_ns
        assert run_jobs([log.job("bad", epochs=1)], folder, at_once=1) == {}
        is_same = (folder / "bad" / "metrics.jsonl").stat().st_mtime_ns == before
        assert is_same == (started == 1)


BACKGROUND = """
import sys
from pathlib import Path
from elmore.atomic import lock

with lock(Path(sys.argv[1])):
    exec(sys.argv.pop(1 + 3))
"""
"""The trainer, which holds the lock of its folder, as `elmore train` does."""


def test_job_that_finished_after_a_killed_call_is_not_repeated(log: Log, tmp_path: Path) -> None:
    job = replace(log.job("a"), identity=lambda: "settings")
    (tmp_path / "a.json").write_text("settings")
    until_seen = "while not (folder / 'seen').exists(): time.sleep(0.01)"
    code = TRAINER.replace("    start = time", f"    {until_seen}\n    start = time")
    command = [sys.executable, "-c", BACKGROUND, tmp_path / "a", "3", "start", code]
    process = subprocess.Popen(list(map(str, command)))
    wait_for((tmp_path / "a" / "config.toml").exists)
    messages: list[str] = []

    def show(message: str) -> None:
        messages.append(message)
        (tmp_path / "a" / "seen").touch()

    jobs = [job, log.job("b", epochs=1)]
    assert run_jobs(jobs, tmp_path, at_once=1, show=show) == {}
    assert process.wait() == 0
    assert messages == [
        "a: still runs since an earlier call; waiting for it",
        "a: finished",
        "b: finished",
    ]
    assert {epoch["pid"] for epoch in log.epochs["a"]} == {process.pid}
    assert log.epochs["a"][-1]["end"] <= log.epochs["b"][0]["start"], "two ran at the same time"


def test_second_attempt_waits_for_jobs_in_the_background(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: a job that fails as long as one of an earlier call is running."""
    monkeypatch.setattr(schedule, "_DELAY", 60.0)
    command = [sys.executable, "-c", BACKGROUND, tmp_path / "a", "40", "start", TRAINER]
    process = subprocess.Popen(list(map(str, command)))
    wait_for((tmp_path / "a" / "config.toml").exists)
    check = f"if not Path({str(tmp_path / 'a' / 'task.json')!r}).exists(): sys.exit('no memory')"
    code = TRAINER.replace("stop = []", f"stop = []\n{check}")
    (tmp_path / "a.json").touch()
    assert run_jobs([log.job("a"), log.job("b", code=code)], tmp_path, at_once=2) == {}
    assert process.wait() == 0
    assert log.epochs.keys() == {"a", "b"}


def test_run_with_other_settings_starts_again_with_a_message(log: Log, tmp_path: Path) -> None:
    """Oracle: the processes of the epochs."""

    def stop(folder: Path) -> str:
        raise OSError(28, "No space left on device")

    run_jobs([replace(log.job("a"), finish=stop)], tmp_path, at_once=1)
    assert (tmp_path / "a" / "task.json").exists()
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    before = {json.loads(line)["pid"] for line in lines}
    messages: list[str] = []
    other = replace(log.job("a"), identity=lambda: "other settings")
    assert run_jobs([other], tmp_path, at_once=1, show=messages.append) == {}
    assert messages == [
        "a: starts again, because its settings, data, model or commit have changed",
        "a: finished",
    ]
    assert not {epoch["pid"] for epoch in log.epochs["a"]} & before


def test_failed_job_does_not_get_the_result_of_an_earlier_one(log: Log, tmp_path: Path) -> None:
    """Oracle: a finished run of other settings, whose call was killed before it was recorded."""
    finish = log.job("a").finish
    first = replace(log.job("a"), finish=lambda _: 1 / 0, identity=lambda: "old settings")
    with pytest.raises(ZeroDivisionError):
        run_jobs([first], tmp_path, at_once=1)
    assert (tmp_path / "a" / "task.json").exists()
    failing = log.job("a", code="raise SystemExit('no memory')")
    new = replace(failing, finish=finish, identity=lambda: "new settings")
    for _ in range(2):
        problems = run_jobs([new], tmp_path, at_once=1)
        assert problems == {"a": "failed: no memory (exit code 1)"}
    assert log.epochs == {}


def test_unreadable_data_do_not_stop_the_others(log: Log, tmp_path: Path) -> None:
    def unreadable() -> str:
        raise OSError(5, "Input/output error", "train.txt")

    problems = run_jobs(
        [replace(log.job("bad"), identity=unreadable), log.job("good")], tmp_path, at_once=1
    )
    assert problems.keys() == {"bad"}
    assert "train.txt" in problems["bad"]
    assert list(log.epochs) == ["good"]


def test_time_limit_does_not_hide_why_a_job_failed(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_DELAY", 60.0)
    jobs = [log.job("bad", code="raise SystemExit('no memory')"), log.job("long", epochs=1000)]
    problems = run_jobs(jobs, tmp_path, at_once=2, minutes=2 / 60)
    assert problems == {
        "bad": "failed: no memory (exit code 1)",
        "long": "not finished: stopped by the time limit",
    }


def test_killed_job_resumes_from_its_checkpoint(log: Log, tmp_path: Path) -> None:
    """The kernel kills a process if memory is short, for example."""
    once = "if epoch == 2 and mode == 'start': os.kill(os.getpid(), 9)"
    code = TRAINER.replace("    start = time", f"    {once}\n    start = time")
    assert run_jobs([log.job("a", epochs=4, code=code)], tmp_path, at_once=1) == {}
    assert [epoch["epoch"] for epoch in log.epochs["a"]] == [0, 1, 2, 3]
    assert len({epoch["pid"] for epoch in log.epochs["a"]}) == 2


def test_job_that_cannot_resume_starts_again(log: Log, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.toml").touch()
    (tmp_path / "a" / "metrics.jsonl").write_text('{"epoch": "with a damaged checkpoint"}\n')
    (tmp_path / "a.json").touch()
    error = "no checkpoint can be used: 1.safetensors is damaged"
    code = TRAINER.replace("stop = []", f"stop = []\nif mode == 'resume': sys.exit('{error}')")
    messages: list[str] = []
    jobs = [log.job("a", code=code)]
    assert run_jobs(jobs, tmp_path, at_once=1, show=messages.append) == {}
    assert messages[0] == f"a: failed: {error} (exit code 1)"
    assert [epoch["epoch"] for epoch in log.epochs["a"]] == [0, 1]


def test_resumed_job_that_is_killed_keeps_its_epochs(log: Log, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.toml").touch()
    (tmp_path / "a" / "metrics.jsonl").write_text('{"epoch": "of an earlier call"}\n')
    (tmp_path / "a.json").touch()
    killed = tmp_path / "killed"
    once = f"if not Path({str(killed)!r}).exists():"
    kill = f"{once} Path({str(killed)!r}).touch(); os.kill(os.getpid(), 9)"
    code = TRAINER.replace("stop = []", f"stop = []\n{kill}")
    assert run_jobs([log.job("a", code=code)], tmp_path, at_once=1) == {}
    assert [epoch["epoch"] for epoch in log.epochs["a"]] == ["of an earlier call", 1]


def test_invalid_data_is_not_tried_twice_and_reported_once(log: Log, tmp_path: Path) -> None:
    calls, messages = [], list[str]()

    def command(folder: Path, resume: bool) -> list[str]:
        calls.append(folder)
        raise InputError("train.json is damaged")

    bad = [replace(log.job(name), command=command) for name in ("bad", "too")]
    problems = run_jobs([*bad, log.job("good")], tmp_path, at_once=1, show=messages.append)
    assert problems == dict.fromkeys(["bad", "too"], "failed: train.json is damaged")
    assert [m for m in messages if "damaged" in m] == ["bad: failed: train.json is damaged"]
    assert len(calls) == 2
    assert list(log.epochs) == ["good"]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_interrupted_call_saves_checkpoints_and_the_next_one_resumes(
    log: Log, tmp_path: Path
) -> None:
    def interrupt(message: str) -> None:
        wait_for((tmp_path / "long" / "metrics.jsonl").exists)
        raise KeyboardInterrupt

    jobs = [log.job("long", epochs=60), log.job("short", epochs=1)]
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, tmp_path, at_once=2, show=interrupt)
    done = len((tmp_path / "long" / "metrics.jsonl").read_text().splitlines())
    assert 0 < done < 60
    assert run_jobs([log.job("long", epochs=done + 2)], tmp_path, at_once=1) == {}
    epochs = log.epochs["long"]
    assert [epoch["epoch"] for epoch in epochs] == list(range(done + 2))
    assert [epoch["pid"] for epoch in epochs].count(epochs[0]["pid"]) == done


def test_time_limit_stops_jobs_which_a_later_call_resumes(log: Log, tmp_path: Path) -> None:
    messages: list[str] = []
    start = time.monotonic()
    jobs = [log.job("a", epochs=1000), log.job("b")]
    problems = run_jobs(jobs, tmp_path, at_once=1, minutes=2 / 60, show=messages.append)
    assert time.monotonic() - start < 2 + schedule._GRACE
    assert problems == {
        "a": "not finished: stopped by the time limit",
        "b": "not finished: too little time left",
    }
    assert messages == ["a: stopped by the time limit; the next call resumes it"]
    done = len((tmp_path / "a" / "metrics.jsonl").read_text().splitlines())
    assert run_jobs([log.job("a", epochs=done + 1), log.job("b")], tmp_path, at_once=2) == {}
    assert len(log.epochs["a"]) == done + 1
