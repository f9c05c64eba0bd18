"""One seed, one thread, a tiny biLM, and the shared data where it is present."""

import os
from pathlib import Path

import pytest
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder

SHARED = Path(__file__).parents[2] / "shared" / "data"

# Without a GPU, kernels run in Triton's interpreter. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Two test processes on two cores: more threads would only compete, also in subprocesses.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def bilm() -> BiLM:
    return BiLM(BiLMConfig.tiny()).eval()


@pytest.fixture
def embedder(bilm: BiLM) -> Embedder:
    return Embedder(bilm, device="cpu")


@pytest.fixture(params=["allennlp_elmo", "bilm_tf_model"])
def published(request: pytest.FixtureRequest) -> Path:
    """The folder of a published fixture: weights, sentences and the vectors they gave in 2018."""
    folder = SHARED / "fixtures" / request.param
    if not folder.is_dir():
        pytest.skip("the published fixtures are not on this machine")
    return folder


@pytest.fixture
def tasks() -> Path:
    """The folder of the tasks' data."""
    folder = SHARED / "tasks"
    if not folder.is_dir():
        pytest.skip("the data of the tasks is not on this machine")
    return folder
