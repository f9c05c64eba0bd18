"""Both directions at the same time. Oracles: the calls made by hand; PyTorch's thread counts."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmore.inference.directions import run_directions


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_directions_share_the_threads() -> None:
    for num_threads, shares in [(2, (1, 1)), (5, (3, 2)), (2, (1, 1))]:
        torch.set_num_threads(num_threads)
        assert run_directions(lambda _: torch.get_num_threads()) == shares
        assert torch.get_num_threads() == num_threads
        with ThreadPoolExecutor(1) as other:
            assert other.submit(torch.get_num_threads).result() == num_threads


def test_directions_run_at_the_same_time() -> None:
    torch.set_num_threads(2)
    both = threading.Barrier(2)  # raises after the timeout unless two threads wait
    assert sorted(run_directions(lambda _: both.wait(timeout=20))) == [0, 1]


def test_one_thread_stays_in_the_thread_of_the_caller() -> None:
    torch.set_num_threads(1)
    me = threading.get_ident()
    assert run_directions(lambda _: threading.get_ident()) == (me, me)


def test_an_error_reaches_the_caller_and_the_next_call_works() -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError):
        run_directions(lambda d: 1 // d)
    assert run_directions(lambda d: d) == (0, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_starts_workers_of_its_own() -> None:
    torch.set_num_threads(2)
    run_directions(lambda d: d)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(2)
            code = 0 if run_directions(lambda d: d) == (0, 1) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
