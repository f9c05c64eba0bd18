"""Both directions at the same time, each on half of PyTorch's threads.

The LSTMs of a direction are a long sequence of short operations. When all threads share an
operation, they wait for the slowest one at its end. The two directions wait for each other once.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import torch

T = TypeVar("T")

_lock = Lock()
_num_threads = 1
_workers: list[ThreadPoolExecutor] = []  # one thread for each direction


def run_directions(function: Callable[[int], T]) -> tuple[T, T]:
    """Return function(0) and function(1), computed at the same time.

    All callers share two threads, so that several at once do not use more than PyTorch's number of
    threads. With a single one, the caller's thread computes both.
    """
    if torch.get_num_threads() == 1:
        return function(0), function(1)
    forward, backward = (worker.submit(function, d) for d, worker in enumerate(_get_workers()))
    return forward.result(), backward.result()


def _get_workers() -> list[ThreadPoolExecutor]:
    """Return the workers, new ones if PyTorch's number of threads has changed."""
    global _num_threads, _workers
    num_threads = torch.get_num_threads()
    with _lock:
        if num_threads != _num_threads:
            _workers = [
                ThreadPoolExecutor(1, "elmore", torch.set_num_threads, (share,))
                for share in (num_threads - num_threads // 2, num_threads // 2)
            ]
            for worker in _workers:
                worker.submit(torch.get_num_threads).result()  # starts the thread
            # A thread takes over the number that was set last, by any thread, before it started.
            torch.set_num_threads(num_threads)
            _num_threads = num_threads
        return _workers


def _forget_workers() -> None:
    global _lock, _num_threads, _workers
    _lock, _num_threads, _workers = Lock(), 1, []


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_workers)  # threads do not survive a fork
