"""Compute results ahead of their use, in a thread or in several processes."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    ahead: int = 2,
    workers: Executor | None = None,
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in order, computed up to `ahead` items ahead.

    Unlike `Executor.map`, this reads the items only as they are needed.

    Args:
        function: The function to call.
        items: Its arguments.
        ahead: Number of results to compute before they are used.
        workers: Computes them; by default one thread. GPU work of the thread runs in order with
            the caller's: both use the default stream.
    """
    if workers is None:
        with ThreadPoolExecutor(max_workers=1) as thread:
            yield from prefetch(function, items, ahead=ahead, workers=thread)
        return
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(workers.submit(function, item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
