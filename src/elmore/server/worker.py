"""A process that holds the models: what it computes cannot block or crash the server.

The parent sends a batch and receives its answers. When either process dies, the other one sees the
end of the pipe: a worker exits, the parent starts a new worker.
"""

import gc
import logging
import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from elmore.errors import InputError, describe_os_error
from elmore.server.messages import Answer, Batch
from elmore.server.setup import Setup

if TYPE_CHECKING:
    from elmore.server.backend import Backend

logger = logging.getLogger("elmore.server")


class WorkerDiedError(Exception):
    """The process ended, or was ended because it took too long."""


class Worker:
    """A process with a `Backend`. Call its methods from one thread at a time."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._connection: Connection | None = None
        self.process: Any = None
        self._killed = False

    def start(self) -> dict[str, Any]:
        """Start the process and wait until it is ready; return what it has loaded.

        Raises:
            InputError: If a model, a task or a corpus cannot be loaded.
            WorkerDiedError: If the process ended, for example because there is too little memory.
        """
        if self._killed:
            raise WorkerDiedError
        context = multiprocessing.get_context("spawn")
        connection, theirs = context.Pipe()
        process = context.Process(
            target=_work, args=(theirs, self._setup), name="elmore-worker", daemon=True
        )
        process.start()
        self.process, self._connection = process, connection
        if self._killed:
            process.kill()
        theirs.close()
        loaded = self._receive(None)
        if isinstance(loaded, str):
            self.stop()
            raise InputError(loaded)
        return loaded

    def run(self, batch: Batch, seconds: float) -> list[Answer]:
        """Return the answers of a batch.

        Raises:
            TimeoutError: If they take too long. The process is ended.
            WorkerDiedError: If the process has ended.
        """
        try:
            assert self._connection is not None
            self._connection.send(batch)
        except OSError as error:
            raise WorkerDiedError from error
        return self._receive(seconds)

    def _receive(self, seconds: float | None) -> Any:
        assert self._connection is not None
        try:
            if not self._connection.poll(seconds):
                self.stop()
                raise TimeoutError
            return self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise WorkerDiedError from error

    def kill(self) -> None:
        """End the process for good. A thread waiting in `start` gets a `WorkerDiedError`."""
        self._killed = True
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        """End the process."""
        if self._connection is not None:
            self.process.kill()
            self.process.join()
            self._connection.close()
            self._connection = None


def _work(connection: Connection, setup: Setup) -> None:
    """Answer batches until the parent closes the pipe."""
    # Ctrl-C and systemd signal all processes of a group; the parent decides when to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    from elmore.server.backend import Backend  # PyTorch: the parent does not need it

    try:
        backend = Backend(setup)
    except (InputError, ImportError) as error:
        connection.send(str(error))
        return
    except OSError as error:
        connection.send(describe_os_error(error))
        return
    # Full garbage collections would visit all modules and models, and delay all requests.
    gc.freeze()
    connection.send(backend.describe())
    while True:
        try:
            batch = connection.recv()
        except (EOFError, ConnectionError):
            return
        connection.send(answer(backend, batch))


def answer(backend: "Backend", batch: Batch) -> list[Answer]:
    """Answer a batch. If that fails, answer its requests one by one: others are not to suffer."""
    try:
        return backend.answer(*batch)
    except Exception:
        if len(batch.requests) > 1:
            return [answer(backend, batch._replace(requests=[r]))[0] for r in batch.requests]
        logger.exception("a request failed")
        return [Answer(500, b'{"detail":"the server failed to answer this request"}')]
