"""OpenMP threads and processes. Oracles: environment variables; the vectors of the parent."""

import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


SPIN_COUNT = "; import os; print(os.environ.get('GOMP_SPINCOUNT'))"


def test_spinning_is_limited_unless_set_or_torch_is_already_imported() -> None:
    assert run("import elmore" + SPIN_COUNT) == "None"
    assert run("import elmore; elmore.load" + SPIN_COUNT) == "1000"
    assert run("import elmore; elmore.load" + SPIN_COUNT, GOMP_SPINCOUNT="7") == "7"
    assert run("import torch, elmore; elmore.load" + SPIN_COUNT) == "None"


FORK = """
import multiprocessing
import numpy as np, torch, elmore

torch.set_num_threads(2)
embedder = elmore.load(device="cpu")
sentences = [["He", "sat", "by", "the", "bank"] * 6] * 8
expected = embedder.embed(sentences)

def embed(queue):
    actual = {EMBEDDER}.embed(sentences)
    queue.put([float(np.abs(a - b).max()) for a, b in zip(actual, expected)])

context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=embed, args=(queue,))
process.start()
print(max(queue.get(timeout=60)))
process.join()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("embedder", ["embedder", 'elmore.load(device="cpu")'])
def test_forked_process_embeds(embedder: str) -> None:
    """With the parent's embedder or its own, after the parent has embedded with two threads."""
    assert float(run(FORK.replace("{EMBEDDER}", embedder))) < 1e-5
