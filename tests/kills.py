"""Run a command of elmore in processes that are killed, and resume it each time.

    python -m tests.kills points FOLDER COMMAND...
    python -m tests.kills random FOLDER COMMAND...

`points` kills the command at each change that it makes to its files: before a rename or a removal,
and between the opening of a file and its first byte. `random` kills it several times, after random
delays. Every run has a folder of its own, FOLDER/0, FOLDER/1, ..., and writes to `out` there; the
run in FOLDER/whole is not disturbed.

Processes are forked from this one, which has imported elmore, so that a run takes a fraction of a
second. SIGKILL leaves a process no chance to clean up.
"""

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

from elmore.cli import main

RANDOM_RUNS, KILLS_PER_RUN = 3, 4
COMPLETE = {"embed": "out.h5", "pretrain": "out/config.json", "train": "out/task.json"}
"""The file that is written last."""
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_SECONDS_PER_LOOK = 60  # so that work which is due after some time is due in a short run, too


class Change(NamedTuple):
    """A change of a file that a process is about to make."""

    kind: str
    path: str
    flags: int = 0


def watch(folder: Path, on_change: Callable[[Change], None]) -> None:
    """Call a function before each change that this process makes to a file in `folder`."""

    def hook(event: str, args: tuple) -> None:
        opens = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
        if not (opens or event in _CHANGES) or not isinstance(args[0], str | os.PathLike):
            return
        path = Path(args[0]).absolute()
        made_already = event == "os.mkdir" and path.exists()
        gone_already = event == "os.remove" and args[1] == -1 and not path.exists()
        if path.is_relative_to(folder) and not made_already and not gone_already:
            on_change(Change(event, str(path), args[2] if opens else 0))

    sys.addaudithook(hook)


def start(
    folder: Path, command: list[str], on_change: Callable[[Change], None] | None = None
) -> int:
    """Run a command in a new process, in a folder of its own; return the process id."""
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
        time.monotonic = count(0, _SECONDS_PER_LOOK).__next__
        if on_change:
            watch(folder, on_change)
        sys.argv = ["elmore", *command]
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    if folder.name == "whole":
        (folder.parent / "modules.json").write_text(json.dumps(list(sys.modules)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_whole(folder: Path, command: list[str]) -> list[Change]:
    """Run a command undisturbed; return the changes it makes, and import what it has imported."""
    changes = folder / "changes.jsonl"

    def record(change: Change) -> None:
        with os.fdopen(os.open(changes, os.O_CREAT | os.O_WRONLY | os.O_APPEND), "w") as file:
            file.write(json.dumps(change) + "\n")

    if wait(start(folder / "whole", command, record)):
        sys.exit(f"the undisturbed run failed:\n{(folder / 'log.txt').read_text()}")
    for name in json.loads((folder / "modules.json").read_text()):
        with suppress(ImportError):  # not every module can be imported by its name
            importlib.import_module(name)
    return [Change(*json.loads(line)) for line in changes.read_text().splitlines()]


def complete(folder: Path, command: list[str]) -> None:
    """Complete a run that was killed: resume it or, if it has left nothing to resume, start it."""
    if (folder / COMPLETE[command[0]]).exists():
        return
    if wait(start(folder, [*command, "--resume"])) and wait(start(folder, command)):
        sys.exit(f"{folder} can't be completed:\n{(folder.parent / 'log.txt').read_text()}")


def kill_at_points(folder: Path, command: list[str], changes: list[Change]) -> None:
    for point, expected in enumerate(changes):
        run = folder / f"{point}"
        if wait(start(run, command, killer(point))) != -signal.SIGKILL:
            sys.exit(f"{expected} did not happen again")
        complete(run, command)


def killer(point: int) -> Callable[[Change], None]:
    """Return a function that ends this process when it is called after `point` calls."""
    calls = count()

    def kill(change: Change) -> None:
        if next(calls) == point:
            creates = change.kind == "open" and change.flags & os.O_CREAT
            if creates and not Path(change.path).is_dir():  # where a temporary file has no name
                os.close(os.open(change.path, change.flags, 0o666))  # leaves an empty file
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def kill_at_random(folder: Path, command: list[str]) -> None:
    began = time.monotonic()
    wait(start(folder / "again", command))
    seconds = time.monotonic() - began
    for number in range(RANDOM_RUNS):
        draw = random.Random(number)
        run = folder / f"{number}"
        for _ in range(KILLS_PER_RUN):
            if (run / COMPLETE[command[0]]).exists():
                break
            child = start(run, [*command, "--resume"] if any(run.glob("out*")) else command)
            time.sleep(draw.uniform(0, 0.8 * seconds))
            os.kill(child, signal.SIGKILL)
            wait(child)
        complete(run, command)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.modules["matplotlib"] = None  # plots would take most of the time
    how, where, *words = sys.argv[1:]
    changes = run_whole(Path(where), words)
    if how == "points":
        kill_at_points(Path(where), words, changes)
    else:
        kill_at_random(Path(where), words)
