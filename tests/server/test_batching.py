"""The queue. Oracles: batches that a worker has seen; a request computed alone."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from elmore.server import batching
from elmore.server.batching import BATCH_WORDS, BusyError, Queue
from elmore.server.messages import Answer, Batch
from elmore.server.metrics import Metrics
from elmore.server.schemas import EmbedRequest
from elmore.server.setup import Limits
from elmore.server.worker import WorkerDiedError
from tests.server.conftest import InProcess


class Scripted:
    """A worker that answers with its requests, and fails as often as told."""

    def __init__(self, failures: int = 0, error: type[Exception] = WorkerDiedError) -> None:
        self.batches: list[Batch] = []
        self.starts = 0
        self.failures, self.error = failures, error
        self.released = threading.Event()
        self.released.set()

    def start(self) -> None:
        self.starts += 1

    def run(self, batch: Batch, seconds: float) -> list[Answer]:
        self.batches.append(batch)
        self.released.wait(10)
        if self.failures:
            self.failures -= 1
            raise self.error
        return [Answer(200, str(request).encode()) for request in batch.requests]

    def stop(self) -> None:
        pass


def run(worker: Any, main: Callable[[Queue], Awaitable[Any]], limits: Limits | None = None) -> Any:
    async def started() -> Any:
        queue = Queue([worker], limits or Limits(), Metrics())
        await queue.start()
        try:
            return await main(queue)
        finally:
            await queue.stop()

    return asyncio.run(started())


def submit(queue: Queue, *requests: Any, words: int = 10) -> "asyncio.Future[list[Any]]":
    jobs = (queue.submit("model", "tiny", request, words) for request in requests)
    return asyncio.gather(*jobs, return_exceptions=True)


def test_requests_that_arrive_together_share_a_batch_and_keep_their_answers() -> None:
    worker = Scripted()
    answers = run(worker, lambda queue: submit(queue, *range(20)))
    assert [answer.body for answer in answers] == [str(i).encode() for i in range(20)]
    assert [batch.requests for batch in worker.batches] == [list(range(20))]


def test_results_do_not_depend_on_the_batch(worker: InProcess) -> None:
    sentences = [["He", "sat"], ["Banks", "fail", "in", "spring"], ["a"], ["He", "sat"]]
    requests = [EmbedRequest(tokens=[s], layers=j % 3) for j, s in enumerate(sentences)]
    worker.batches.clear()
    together = run(worker, lambda queue: submit(queue, *requests))
    assert [len(batch.requests) for batch in worker.batches] == [4]
    for request, answer in zip(requests, together, strict=True):
        [alone] = run(worker, lambda queue, r=request: submit(queue, r))
        # The rows of a product are rounded differently if there are more of them.
        vectors = [np.array(json.loads(a.body)["vectors"][0]) for a in (answer, alone)]
        np.testing.assert_allclose(*vectors, rtol=1e-5, atol=1e-6)


def test_batches_are_bounded_and_of_one_model() -> None:
    worker = Scripted()

    async def main(queue: Queue) -> None:
        others = asyncio.create_task(queue.submit("task", "ner", "x", 1))
        await submit(queue, *range(5), words=BATCH_WORDS // 2)
        await others

    run(worker, main)
    assert [(b.kind, len(b.requests)) for b in worker.batches] == [
        ("task", 1), ("model", 2), ("model", 2), ("model", 1),
    ]  # fmt: skip


def test_full_queue_refuses_and_accepts_again() -> None:
    worker = Scripted()
    worker.released.clear()

    async def main(queue: Queue) -> tuple[list[Any], list[Any]]:
        computing = submit(queue, "first")
        await asyncio.sleep(0.1)
        crowd = submit(queue, *range(9), words=30)
        await asyncio.sleep(0.05)
        worker.released.set()
        await computing
        return await crowd, await submit(queue, "later")

    crowd, later = run(worker, main, Limits(max_queue=100))
    busy = [answer for answer in crowd if isinstance(answer, BusyError)]
    assert len(busy) == 6
    assert all(error.args[0] >= 1 for error in busy)
    assert later[0].body == b"later"


def test_a_request_larger_than_the_queue_is_accepted_if_nothing_waits() -> None:
    [answer] = run(Scripted(), lambda q: submit(q, 1, words=200), Limits(max_queue=100))
    assert answer.status == 200


def test_a_batch_is_computed_again_if_its_worker_dies() -> None:
    worker = Scripted(failures=1)
    answers = run(worker, lambda queue: submit(queue, 1, 2))
    assert [answer.body for answer in answers] == [b"1", b"2"]
    assert worker.starts == 1


@pytest.mark.parametrize("error", [WorkerDiedError, ValueError])
def test_a_batch_that_ends_two_workers_is_given_up_and_the_next_is_computed(
    error: type[Exception],
) -> None:
    worker = Scripted(failures=2, error=error)

    async def main(queue: Queue) -> list[Any]:
        return [*await submit(queue, "poison"), *await submit(queue, "good"), queue.ready]

    poison, good, ready = run(worker, main)
    assert isinstance(poison, WorkerDiedError)
    assert good.body == b"good"
    assert (worker.starts, ready) == (2, 1)


def test_slow_batches_end_their_worker_and_are_not_tried_again() -> None:
    worker = Scripted(failures=1, error=TimeoutError)
    [late] = run(worker, lambda queue: submit(queue, 1))
    assert isinstance(late, TimeoutError)
    assert worker.starts == 1
    assert len(worker.batches) == 1


def test_requests_that_wait_for_the_time_limit_are_refused() -> None:
    worker = Scripted()
    worker.released.clear()

    async def main(queue: Queue) -> list[Any]:
        computing = submit(queue, "first")
        await asyncio.sleep(0.1)
        waiting = submit(queue, "second")
        started = time.monotonic()
        [answer] = await waiting
        seconds = time.monotonic() - started
        worker.released.set()
        await computing
        return [answer, seconds]

    answer, seconds = run(worker, main, Limits(time_limit=0.3))
    assert isinstance(answer, BusyError)
    assert 0.25 < seconds < 2
    assert [batch.requests for batch in worker.batches] == [["first"]]


def test_requests_of_clients_that_were_just_answered_join_those_that_waited() -> None:
    """Otherwise two groups of clients take turns, with batches that are smaller than necessary."""
    worker = Scripted()
    worker.released.clear()

    async def main(queue: Queue) -> None:
        first = submit(queue, 1)
        await asyncio.sleep(0.05)
        second = submit(queue, 2, 3)
        await asyncio.sleep(0.05)
        worker.released.set()
        await first
        await submit(queue, 4)
        await second

    run(worker, main)
    assert [batch.requests for batch in worker.batches] == [[1], [2, 3, 4]]


def test_batch_starts_once_all_expected_requests_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Oracle: the time of a server that waits until no request has arrived for two seconds."""
    worker = Scripted()

    async def main(queue: Queue) -> float:
        await submit(queue, 1, 2)
        monkeypatch.setattr(batching, "GATHER_SECONDS", 2.0)
        monkeypatch.setattr(batching, "MAX_GATHER_SECONDS", 2.0)
        started = time.monotonic()
        await submit(queue, 3, 4)
        return time.monotonic() - started

    assert run(worker, main) < 1
    assert [batch.requests for batch in worker.batches] == [[1, 2], [3, 4]]


def test_batch_waits_longer_for_expected_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: a client that returns after ten times the time without expected requests."""
    monkeypatch.setattr(batching, "RETURN_SECONDS", 1.0)
    monkeypatch.setattr(batching, "MAX_GATHER_SECONDS", 5.0)
    worker = Scripted()

    async def main(queue: Queue) -> None:
        await submit(queue, 1, 2)
        first = submit(queue, 3)
        await asyncio.sleep(10 * batching.GATHER_SECONDS)
        await asyncio.gather(first, submit(queue, 4))

    run(worker, main)
    assert [batch.requests for batch in worker.batches] == [[1, 2], [3, 4]]


def test_requests_that_waited_for_a_batch_wait_for_its_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Oracle: as before, with a request that came while the batch was computed."""
    monkeypatch.setattr(batching, "RETURN_SECONDS", 1.0)
    monkeypatch.setattr(batching, "MAX_GATHER_SECONDS", 5.0)
    worker = Scripted()
    worker.released.clear()

    async def main(queue: Queue) -> None:
        first = submit(queue, 1)
        await asyncio.sleep(0.05)
        second = submit(queue, 2)
        await asyncio.sleep(0.05)
        worker.released.set()
        await first
        await asyncio.sleep(10 * batching.GATHER_SECONDS)
        await asyncio.gather(second, submit(queue, 3))

    run(worker, main)
    assert [batch.requests for batch in worker.batches] == [[1], [2, 3]]


def test_many_requests_do_not_wait_for_others() -> None:
    """While they are computed, the server answers others and reads their next requests."""
    worker = Scripted()
    worker.released.clear()

    async def main(queue: Queue) -> None:
        first = submit(queue, 1, words=BATCH_WORDS)
        await asyncio.sleep(0.05)
        second = submit(queue, 2, words=BATCH_WORDS // 2)
        await asyncio.sleep(0.05)
        worker.released.set()
        await first
        await asyncio.gather(second, submit(queue, 3))

    run(worker, main)
    assert [batch.requests for batch in worker.batches] == [[1], [2], [3]]


def test_requests_do_not_wait_for_those_of_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the time of a server that waits for the clients of the other model."""
    monkeypatch.setattr(batching, "RETURN_SECONDS", 1.0)
    monkeypatch.setattr(batching, "MAX_GATHER_SECONDS", 5.0)
    worker = Scripted()
    worker.released.clear()

    async def main(queue: Queue) -> float:
        computing = asyncio.gather(*(queue.submit("model", "a", n, 1) for n in range(20)))
        await asyncio.sleep(0.05)
        waiting = asyncio.gather(*(queue.submit("model", "b", n, 1) for n in range(10)))
        await asyncio.sleep(0.05)
        worker.released.set()
        await computing
        started = time.monotonic()
        await waiting
        return time.monotonic() - started

    assert run(worker, main) < 2
    assert [len(batch.requests) for batch in worker.batches] == [20, 10]


@pytest.mark.parametrize(("pause", "limit"), [(0.0, 2.0), (1.1, 0.5)])
def test_requests_do_not_wait_long_for_clients_that_do_not_return(
    pause: float, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause and the limit of the wait; the maximum time to gather requests is one second."""
    monkeypatch.setattr(batching, "RETURN_SECONDS", 1.0)
    monkeypatch.setattr(batching, "MAX_GATHER_SECONDS", 1.0)
    worker = Scripted()

    async def main(queue: Queue) -> float:
        await submit(queue, *range(20))
        await asyncio.sleep(pause)
        started = time.monotonic()
        await submit(queue, 20)
        return time.monotonic() - started

    assert run(worker, main) < limit
    assert [len(batch.requests) for batch in worker.batches] == [20, 1]
