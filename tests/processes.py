"""Run `elmore` commands in processes of their own: for signals, limits and distributed training.

Processes are forked from a server that has imported PyTorch and elmore, so they start in a fraction
of a second.
"""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from elmore.cli import main

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "elmore.embedder",
        "elmore.pretrain.run",
        "elmore.vectors.embed_file",
        "pytest",
        "torch._dynamo",
    ]
)


_MAX_SECONDS = 300


class Result(NamedTuple):
    """Exit code and output of a command. A process that a signal killed has its negative number."""

    code: int
    out: str
    err: str


class Command:
    """An `elmore` command that runs in another process, in the current folder.

    Args:
        args: The arguments of the command.
        prepare: Called in the process before the command. It must be possible to pickle it.
        env: Environment variables to set. The others are those of the server, which starts once.
    """

    def __init__(
        self,
        *args: object,
        prepare: Callable[[], None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._output = TemporaryDirectory()
        self._process = SERVER.Process(
            target=_run,
            args=([*map(str, args)], Path.cwd(), Path(self._output.name), prepare, dict(env or {})),
        )
        self._process.start()

    def running(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self) -> Result:
        self._process.join(_MAX_SECONDS)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise TimeoutError(f"a command did not end within {_MAX_SECONDS} seconds")
        out, err = ((Path(self._output.name) / name).read_text() for name in ("out", "err"))
        self._output.cleanup()
        return Result(code, out, err)


def _run(
    args: list[str],
    folder: Path,
    output: Path,
    prepare: Callable[[], None] | None,
    env: dict[str, str],
) -> None:
    gc.freeze()  # traversing the imported modules would copy their memory
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(output / name, os.O_CREAT | os.O_WRONLY), number)
    os.chdir(folder)
    os.environ.update(env)
    if prepare:
        prepare()
    sys.argv = ["elmore", *args]
    main()
