"""Training runs in processes of their own, several at a time, within a time limit.

FOLDER/NAME/       an unfinished run, as `elmore train` writes it; its checkpoints resume it
FOLDER/NAME.log    the output of its process
FOLDER/NAME.json   what the run depends on: settings, data and model
"""

import math
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elmore.atomic import is_locked, write_text
from elmore.errors import InputError
from elmore.training.run_folder import NO_CHECKPOINT

Show = Callable[[str], None]

_RESERVED = 60.0
"""Seconds before the time limit at which runs are asked to stop after their epoch."""

_GRACE = 20.0
"""Seconds that runs get to complete their epoch when the user interrupts them."""

_DELAY = 60.0
"""Seconds until a failed run is tried again: other runs may have freed memory by then."""

_POLL = 0.1  # seconds
_BACKGROUND_POLL = 1.0  # seconds; rarely, because checking a lock takes it for a moment
_ATTEMPTS = 2
_LAST_FILE = "task.json"  # of a finished run
_NO_TIME = "not finished: too little time left"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A run to schedule."""

    name: str

    command: Callable[[Path, bool], list[str]]
    """Returns the command line, given the folder of the run, and whether the run in it is resumed
    rather than replaced. On SIGTERM, the command completes its epoch, writes a checkpoint and exits
    with an error; on a second one, it stops at once."""

    finish: Callable[[Path], str]
    """Called with the folder of the finished run; returns a message."""

    identity: Callable[[], str]
    """Returns what the run depends on, as JSON. A run of an earlier call is resumed, or counts if
    it has finished in the meantime, unless this has changed since."""


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    *,
    at_once: int,
    minutes: float | None = None,
    environment: Mapping[str, str] | None = None,
    show: Show = lambda _: None,
) -> dict[str, str]:
    """Run jobs in their order, and return the reasons why some have not finished.

    A failed job is retried once: after a minute, or as soon as no other job runs. It resumes from
    its checkpoints or, if these are damaged, starts from the beginning.

    Jobs of a call that was killed continue in the background. They count as running, and one that
    has finished in the meantime is not repeated.

    Jobs that are stopped, by the time limit or because this function is interrupted, resume from
    their checkpoints in the next call.

    Args:
        jobs: The jobs.
        folder: Folder for unfinished runs.
        at_once: Maximum number of jobs that run at the same time.
        minutes: Time limit for all jobs together.
        environment: Environment variables of the jobs.
        show: Called with messages about the progress.
    """
    start = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    waiting, running = list(jobs), list[_Process]()
    attempts, problems = Counter[str](), dict[str, str]()
    not_before: dict[str, float] = {}
    cannot_resume: set[str] = set()
    in_background: set[str] = set()
    looked = -math.inf

    def fail(job: Job, reason: str) -> None:
        problems[job.name] = f"failed: {reason}"
        with_same_reason = [n for n, other in problems.items() if other == problems[job.name]]
        if with_same_reason == [job.name]:  # a damaged file fails all runs that read it
            show(f"{job.name}: {problems[job.name]}")

    def finish(job: Job) -> None:
        problems.pop(job.name, None)
        try:
            show(f"{job.name}: {job.finish(folder / job.name)}")
        except InputError as error:  # the next call repeats the run
            fail(job, str(error))
        except OSError as error:  # a full disk, for example; the next call finishes it
            fail(job, str(error))
            return
        for path in (_log(folder, job), _identity(folder, job)):
            path.unlink(missing_ok=True)

    def is_ready(job: Job) -> bool:
        others_run = running or in_background
        can_start = not others_run or time.monotonic() >= not_before.get(job.name, 0)
        return job.name not in in_background and can_start

    def look_for_background() -> None:
        """Find the jobs that still run since an earlier call."""
        nonlocal looked
        if time.monotonic() < looked + _BACKGROUND_POLL:
            return
        looked = time.monotonic()
        for job in waiting:
            if not is_locked(folder / job.name):
                in_background.discard(job.name)
            elif job.name not in in_background:
                in_background.add(job.name)
                show(f"{job.name}: still runs since an earlier call; waiting for it")

    def start_next() -> bool:
        """Start the first job that is ready; return whether there was one."""
        job = next(filter(is_ready, waiting), None)
        if job is None:
            return False
        waiting.remove(job)
        path = folder / job.name
        try:
            is_same = _is_same(folder, job)
            if is_same and (path / _LAST_FILE).exists():
                finish(job)
            elif time_is_up():
                problems.setdefault(job.name, _NO_TIME)
            else:
                if path.exists() and not is_same:
                    show(
                        f"{job.name}: starts again, because its settings, data, model or commit "
                        "have changed"
                    )
                resume = is_same and job.name not in cannot_resume and _is_resumable(path)
                attempts[job.name] += 1
                running.append(_Process(job, folder, environment, resume=resume))
        except (InputError, OSError) as error:  # invalid or unreadable data
            fail(job, str(error))
        return True

    def time_is_up() -> bool:
        return minutes is not None and time.monotonic() > start + 60 * minutes - _RESERVED

    try:
        while waiting or running:
            look_for_background()
            while len(running) + len(in_background) < at_once and start_next():
                pass
            time.sleep(_POLL)
            stopping = time_is_up()
            if stopping:
                _stop(running, _RESERVED)
                for job in waiting:
                    problems.setdefault(job.name, _NO_TIME)
                waiting.clear()
            for process in [process for process in running if process.ended]:
                running.remove(process)
                job = process.job
                if not process.failed:
                    finish(job)
                elif stopping:
                    problems[job.name] = "not finished: stopped by the time limit"
                    show(f"{job.name}: stopped by the time limit; the next call resumes it")
                else:
                    fail(job, process.reason())
                    if NO_CHECKPOINT in process.reason():
                        cannot_resume.add(job.name)
                    if attempts[job.name] < _ATTEMPTS:
                        not_before[job.name] = time.monotonic() + _DELAY
                        waiting.append(job)
    finally:
        _stop(running, _GRACE)
    return problems


class _Process:
    """A job that runs."""

    def __init__(
        self, job: Job, folder: Path, environment: Mapping[str, str] | None, *, resume: bool
    ) -> None:
        self.job, self.folder = job, folder / job.name
        self.log = _log(folder, job)
        if not resume and self.folder.exists():
            # Otherwise, an earlier run could be taken for this one if this one fails at its start.
            shutil.rmtree(self.folder)
        command = job.command(self.folder, resume)
        write_text(_identity(folder, job), job.identity())
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches this process only, which then stops the jobs.
            self._process = subprocess.Popen(  # noqa: S603
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def failed(self) -> bool:
        return self._process.returncode != 0

    def reason(self) -> str:
        """Return why the process failed: its signal, or the last line of its output."""
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return "killed by SIGKILL, perhaps because the memory was full"
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        text = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        return f"{text.removeprefix('elmore: '):.300} (exit code {code})"

    def ask_to_stop(self) -> None:
        self._process.terminate()

    def wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _stop(processes: Iterable[_Process], seconds: float) -> None:
    """Let processes complete their epoch for some seconds; then stop them at once."""
    remaining = [process for process in processes if not process.ended]
    try:
        for patience in (seconds, _GRACE):
            for process in remaining:
                process.ask_to_stop()  # the second time, `elmore train` stops within its epoch
            end = time.monotonic() + patience
            for process in remaining:
                process.wait(max(0, end - time.monotonic()))
            remaining = [process for process in remaining if not process.ended]
    finally:  # even if the user interrupts again
        for process in remaining:
            process.kill()


def _log(folder: Path, job: Job) -> Path:
    return folder / f"{job.name}.log"


def _identity(folder: Path, job: Job) -> Path:
    return folder / f"{job.name}.json"


def _is_same(folder: Path, job: Job) -> bool:
    """Return whether an earlier call has started the run with the same settings, data and model."""
    path = _identity(folder, job)
    return path.exists() and path.read_text(encoding="utf-8") == job.identity()


def _is_resumable(folder: Path) -> bool:
    return (folder / "config.toml").exists()
