"""Processes that share a machine. Oracles: the environment; the same vectors in the parent."""

import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SPIN_COUNT = "; import os; print(os.environ.get('GOMP_SPINCOUNT'))"


def test_spinning_is_limited_before_torch_is_imported() -> None:
    assert run("import elmore" + SPIN_COUNT) == "None"
    assert run("import elmore; elmore.load" + SPIN_COUNT) == "1000"
    assert run("import elmore; elmore.load" + SPIN_COUNT, GOMP_SPINCOUNT="7") == "7"
    assert run("import torch, elmore; elmore.load" + SPIN_COUNT) == "None"


FORK = """
import multiprocessing, sys
import numpy as np, torch, elmore

torch.set_num_threads(2)
embedder = elmore.load(device="cpu")
sentences = [["He", "sat", "by", "the", "bank"] * 6] * 8
expected = embedder.embed(sentences)

def embed(queue):
    again = embedder if "shared" in sys.argv else elmore.load(device="cpu")
    queue.put([float(np.abs(a - b).max()) for a, b in zip(again.embed(sentences), expected)])

context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=embed, args=(queue,))
process.start()
print(max(queue.get(timeout=60)))
process.join()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_process_embeds() -> None:
    """With the parent's embedder and with its own, after the parent has used several threads."""
    for code in (FORK, FORK.replace('"shared" in sys.argv', "True")):
        assert float(run(code)) < 1e-5
