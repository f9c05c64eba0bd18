"""Fixed seed, one thread, a tiny biLM, and paths to optional data."""

import gc
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.inference import cpu

SHARED = Path(__file__).parents[2] / "shared" / "data"

# Without a GPU, kernels run in Triton's interpreter. Triton reads this variable on import.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Tests run in parallel processes; more threads would compete for the same cores.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

# The first example pays for imports, and other processes slow down the rest.
settings.register_profile("elmore", deadline=None)
settings.load_profile("elmore")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that start a Ray cluster, unless they are selected with `-m ray`."""
    if "ray" not in config.option.markexpr:
        for item in items:
            if item.get_closest_marker("ray"):
                item.add_marker(pytest.mark.skip(reason="run by `make test-ray`"))


def pytest_collection_finish() -> None:
    """Exclude the imported modules from garbage collection, which would traverse them each time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # otherwise DuckDB reports leaks at exit


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def bilm() -> BiLM:
    return BiLM(BiLMConfig.tiny()).eval()


@pytest.fixture
def embedder(bilm: BiLM) -> Embedder:
    return Embedder(bilm, device="cpu")


@pytest.fixture(params=[1, 10**9], ids=["packed", "plain"])
def packed_or_plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test twice, with models of any size packed, and with none packed."""
    monkeypatch.setattr(cpu, "_MIN_WEIGHTS", request.param)


@pytest.fixture(params=["allennlp_elmo", "bilm_tf_model"])
def published(request: pytest.FixtureRequest) -> Path:
    """Folder of a test fixture from AllenNLP or bilm-tf: weights, sentences, expected vectors."""
    folder = SHARED / "fixtures" / request.param
    if not folder.is_dir():
        pytest.skip("needs the test fixtures of AllenNLP and bilm-tf")
    return folder


@pytest.fixture
def tasks() -> Path:
    """Folder of the task datasets."""
    folder = SHARED / "tasks"
    if not folder.is_dir():
        pytest.skip("needs the task datasets")
    return folder
