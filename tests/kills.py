"""Kill and resume an elmore command many times.

`kill_and_resume` has two modes. `points` starts one run for each change that the command makes to
its files, and kills the run at this change: before a file is renamed or removed, or after it is
created and before its first byte is written. `random` kills a run several times, after random
delays. Killed runs are then resumed until they are complete. The folders of the runs are
`folder/0`, `folder/1`, ...; the run in `folder/uninterrupted` is never killed.

Runs are forked from a process that has imported elmore, so that they take a fraction of a second.
Processes are killed by SIGKILL, so they cannot clean up.
"""

import gc
import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import torch

from elmore import embedder
from elmore.cli import main
from elmore.inference import batches

RANDOM_RUNS, KILLS_PER_RUN = 1, 5
COMPLETE = {"embed": "out.h5", "pretrain": "out/config.json", "train": "out/task.json"}
"""The last file that each command writes."""
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_SECONDS_PER_CALL = 60  # of a simulated clock, which makes periodic work due in a short run


class Change(NamedTuple):
    """A change that a process is about to make to a file."""

    kind: str
    path: str
    flags: int = 0


def watch(folder: Path, on_change: Callable[[Change], None]) -> None:
    """Call `on_change` before each change that this process makes to a file in `folder`."""

    def hook(event: str, args: tuple) -> None:
        opens = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
        if not (opens or event in _CHANGES) or not isinstance(args[0], str | os.PathLike):
            return
        path = Path(args[0]).absolute()
        fails = event == "os.mkdir" and path.exists()
        fails |= event == "os.remove" and args[1] == -1 and not path.exists()
        if path.is_relative_to(folder) and not fails:
            on_change(Change(event, str(path), args[2] if opens else 0))

    sys.addaudithook(hook)


def start(
    folder: Path, command: list[str], on_change: Callable[[Change], None] | None = None
) -> int:
    """Start a command in a forked process, in the given folder; return the process id."""
    child = os.fork()
    if child:
        return child
    status = 0
    try:
        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        log = os.open(folder.parent / "log.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        time.monotonic = count(0, _SECONDS_PER_CALL).__next__
        if on_change:
            watch(folder, on_change)
        sys.argv = ["elmore", *command]
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    if folder.name == "uninterrupted":
        (folder.parent / "modules.json").write_text(json.dumps(list(sys.modules)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_uninterrupted(folder: Path, command: list[str]) -> list[Change]:
    """Run a command without killing it; return its changes, and import the modules it imported."""
    changes = folder / "changes.jsonl"

    def record(change: Change) -> None:
        with os.fdopen(os.open(changes, os.O_CREAT | os.O_WRONLY | os.O_APPEND), "w") as file:
            file.write(json.dumps(change) + "\n")

    if wait(start(folder / "uninterrupted", command, record)):
        sys.exit(f"the command failed:\n{(folder / 'log.txt').read_text()}")
    for name in json.loads((folder / "modules.json").read_text()):
        with suppress(ImportError):  # some modules cannot be imported by name
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # forked processes would traverse the imported modules, and copy their memory
    return [Change(*json.loads(line)) for line in changes.read_text().splitlines()]


def complete(folder: Path, command: list[str]) -> None:
    """Complete a killed run: resume it or, if it was killed too early to resume, start it again."""
    cleaned_up = not (folder / "out.h5.parts" / "run.json").exists()
    if (folder / COMPLETE[command[0]]).exists() and cleaned_up:
        return
    if wait(start(folder, [*command, "--resume"])) and wait(start(folder, command)):
        sys.exit(f"{folder} could not be completed:\n{(folder.parent / 'log.txt').read_text()}")


def kill_at_points(folder: Path, command: list[str], changes: list[Change]) -> None:
    for point, expected in enumerate(changes):
        run = folder / f"{point}"
        if wait(start(run, command, killer(point))) != -signal.SIGKILL:
            sys.exit(f"the second run did not make this change: {expected}")
        complete(run, command)


def killer(point: int) -> Callable[[Change], None]:
    """Return a function that kills this process in its call number `point`, counted from 0."""
    calls = count()

    def kill(change: Change) -> None:
        if next(calls) == point:
            creates = change.kind == "open" and change.flags & os.O_CREAT
            if creates and not Path(change.path).is_dir():  # O_TMPFILE opens a folder
                with suppress(OSError):
                    os.close(os.open(change.path, change.flags, 0o666))  # leaves an empty file
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def kill_at_random(folder: Path, command: list[str]) -> None:
    start_time = time.monotonic()
    wait(start(folder / "timed", command))
    seconds = time.monotonic() - start_time
    for number in range(RANDOM_RUNS):
        rng = random.Random(number)
        run = folder / f"{number}"
        for _ in range(KILLS_PER_RUN):
            if (run / COMPLETE[command[0]]).exists():
                break
            child = start(run, [*command, "--resume"] if any(run.glob("out*")) else command)
            time.sleep(rng.uniform(0, 0.8 * seconds))
            os.kill(child, signal.SIGKILL)
            wait(child)
        complete(run, command)


def kill_and_resume(mode: str, folder: Path, command: list[str]) -> None:
    """Kill and resume a command in `folder`. Standard error goes to `folder/errors.txt`.

    Call it in a process that has not started threads: it forks.
    """
    errors = os.open(folder / "errors.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(errors, 2)
    torch.set_num_threads(1)
    embedder._BATCH_WORDS["cpu"], batches.WINDOW_WORDS = 50, 100  # so that a short text has several
    sys.modules["matplotlib"] = None  # plots would take most of the time
    changes = run_uninterrupted(folder, command)
    if mode == "points":
        kill_at_points(folder, command, changes)
    else:
        kill_at_random(folder, command)
