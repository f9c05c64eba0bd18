"""A bounded queue in front of the workers. Requests that wait together share a batch."""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from elmore.errors import InputError
from elmore.server.messages import Answer, Batch
from elmore.server.metrics import Metrics
from elmore.server.setup import Limits
from elmore.server.worker import WorkerDiedError

BATCH_WORDS = 2048
"""Words of a batch, about; larger batches make requests wait longer and are hardly faster."""
GATHER_SECONDS = 0.003
"""A batch is computed when no request has arrived for this long."""
RETURN_SECONDS = 0.0002
"""Added to `GATHER_SECONDS` for each expected request: answers are sent one after another."""
MAX_GATHER_SECONDS = 0.06
"""Maximum time to gather requests. Clients whose last answer is older are not waited for."""
_FIRST_SPEED = 2000.0  # words/s, until it is measured

logger = logging.getLogger("elmore.server")


class Computes(Protocol):
    """What the queue needs of a `Worker`."""

    def start(self) -> Any: ...  # noqa: D102
    def run(self, batch: Batch, seconds: float) -> list[Answer]: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


class BusyError(Exception):
    """Too much is waiting. The argument is the number of seconds after which to try again."""


class _Waiting(NamedTuple):
    kind: str
    name: str
    request: Any
    words: int
    answer: "asyncio.Future[Answer]"
    since: float

    @property
    def model(self) -> tuple[str, str]:
        """Kind and name. All requests of a batch are for the same model."""
        return self.kind, self.name


class Queue:
    """Requests that wait for a worker, oldest first.

    Args:
        workers: Started workers.
        limits: The size of the queue, and the time limit of a request.
        metrics: Updated by the queue.
    """

    def __init__(self, workers: Sequence[Computes], limits: Limits, metrics: Metrics) -> None:
        self._workers = workers
        self._limits = limits
        self._metrics = metrics
        self._waiting: deque[_Waiting] = deque()
        self._words = 0
        self._answered: dict[tuple[str, str], tuple[int, float]] = {}
        """By model: the size of its last batch plus the requests then waiting, and its end."""
        self._speed = _FIRST_SPEED
        self._arrival = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self.ready = 0
        """Number of workers that are running."""

    async def start(self) -> None:
        """Begin to answer requests."""
        self.ready = len(self._workers)
        self._loops = [asyncio.create_task(self._serve(worker)) for worker in self._workers]

    async def stop(self) -> None:
        """End the workers. Requests have been answered: the HTTP server waits for them."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in self._workers))

    async def submit(self, kind: str, name: str, request: Any, words: int) -> Answer:
        """Return the answer to a request.

        Args:
            kind: `model` or `task`.
            name: Name of the model or the task.
            request: A request of `schemas`.
            words: Estimated number of words.

        Raises:
            BusyError: If the queue is full, or the request has waited for the time limit.
            TimeoutError: If the computation takes longer than the time limit.
            WorkerDiedError: If workers died twice while they computed the request.
        """
        if self._waiting and self._words + words > self._limits.max_queue:
            raise BusyError(self._retry_after())
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        item = _Waiting(kind, name, request, words, answer, time.monotonic())
        self._waiting.append(item)
        self._count(words)
        self._arrival.set()
        await asyncio.wait([answer], timeout=self._limits.time_limit)
        if not answer.done() and any(other is item for other in self._waiting):
            answer.cancel()
            raise BusyError(self._retry_after())
        async with asyncio.timeout(self._limits.time_limit):
            return await answer

    def _count(self, words: int) -> None:
        self._words += words
        self._metrics.queue_words.set(self._words)

    def _retry_after(self) -> int:
        return max(1, math.ceil(self._words / self._speed / len(self._workers)))

    async def _serve(self, worker: Computes) -> None:
        """Give batch after batch to a worker."""
        while True:
            batch = await self._next_batch()
            if not batch:
                continue
            requests = [item.request for item in batch]
            self._metrics.batch_requests.observe(len(batch))
            started = time.monotonic()
            for attempt in (1, 2):
                try:
                    answers = await asyncio.to_thread(
                        worker.run,
                        Batch(batch[0].kind, batch[0].name, requests),
                        self._limits.time_limit,
                    )
                    model = batch[0].model
                    count = len(batch) + self._count_waiting(model)
                    self._answered[model] = count, time.monotonic()
                    for item, answer in zip(batch, answers, strict=True):
                        if not item.answer.done():  # the client may have disconnected
                            item.answer.set_result(answer)
                except Exception as error:  # not even a bug may end this loop
                    if not isinstance(error, WorkerDiedError | TimeoutError):
                        logger.exception("a worker failed in an unexpected way")
                    await self._replace(worker)
                    # Do not retry a batch that timed out, or one whose worker has ended twice.
                    if isinstance(error, TimeoutError):
                        _fail(batch, error)
                        break
                    if attempt == 2:
                        _fail(batch, WorkerDiedError())
                        break
                else:
                    words = sum(item.words for item in batch)
                    self._measure(words, time.monotonic() - started)
                    break

    async def _next_batch(self) -> list[_Waiting]:
        """Wait for requests; return the oldest one and all that can be computed with it."""
        if self._words < BATCH_WORDS / 2:  # else more requests would hardly save time
            while not self._waiting:
                self._arrival.clear()
                await self._arrival.wait()
            await self._gather()
        batch: list[_Waiting] = []
        rest: deque[_Waiting] = deque()
        words = 0
        for item in self._waiting:
            if item.answer.done():  # canceled by its time limit
                self._count(-item.words)
            elif batch and (item.model != batch[0].model or words + item.words > BATCH_WORDS):
                rest.append(item)
            else:
                batch.append(item)
                words += item.words
        self._waiting = rest
        self._count(-words)
        return batch

    async def _gather(self) -> None:
        """Wait for more requests, until none has arrived for a while or all expected ones have.

        Clients that were just answered often send their next request at once. One more request
        hardly slows a batch down; without it, its client would wait until the batch has finished.
        """
        model = self._waiting[0].model
        expected, answered_at = self._answered.get(model, (0, 0.0))
        if time.monotonic() - answered_at > MAX_GATHER_SECONDS:
            expected = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_GATHER_SECONDS):
                while self._words < BATCH_WORDS:
                    missing = expected > self._count_waiting(model)
                    if expected > 1 and not missing:
                        return
                    quiet = GATHER_SECONDS + (RETURN_SECONDS * expected if missing else 0)
                    self._arrival.clear()
                    await asyncio.wait_for(self._arrival.wait(), quiet)

    def _count_waiting(self, model: tuple[str, str]) -> int:
        return sum(item.model == model for item in self._waiting)

    async def _replace(self, worker: Computes) -> None:
        """Start a worker again, as often as it takes."""
        self.ready -= 1
        self._metrics.worker_restarts.inc()
        pause = 0.5
        while True:
            logger.warning("a worker has ended; starting another one")
            try:
                await asyncio.to_thread(worker.stop)
                await asyncio.to_thread(worker.start)
                break
            except (InputError, WorkerDiedError, OSError) as error:
                logger.error("cannot start a worker: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30)
        self.ready += 1

    def _measure(self, words: int, seconds: float) -> None:
        self._metrics.words.inc(words)
        self._speed += 0.1 * (words / max(seconds, 1e-3) - self._speed)


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for item in batch:
        if not item.answer.done():
            item.answer.set_exception(error)
