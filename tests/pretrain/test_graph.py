"""Training steps captured as CUDA graphs. Oracle: the same steps without a graph."""

import pytest
import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.kernels.graphs import CapturedFunction
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.softmax import Softmax
from elmore.pretrain.graph import GraphedStep
from elmore.pretrain.step import StepResult, train_step
from elmore.text.characters import encode_words
from elmore.text.windows import LMBatch
from elmore.training.optim import OptimizerName, make_optimizer, set_learning_rate
from tests.gpu import DEVICE

pytestmark = pytest.mark.gpu
V, B, T = 200, 4, 5


@pytest.fixture(autouse=True)
def _no_capture_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, call the function instead of a captured graph, to test inputs and outputs."""
    if DEVICE == "cpu":
        monkeypatch.setattr(CapturedFunction, "_capture", lambda captured, _: captured._run)


def windows(count: int) -> list[LMBatch]:
    generator = torch.Generator().manual_seed(0)
    batches = []
    for n in range(count):
        size = (5, 7, 8, 12)[n % 4]  # padded to 8 and to 16
        batches.append(
            LMBatch(
                encode_words([f"w{i}" for i in range(n, n + size)]),
                torch.randint(size, (2, B, T), generator=generator),
                torch.randint(V, (2, B, T), generator=generator),
                torch.rand(2, B, T, generator=generator) < 0.8,
            )
        )
    return batches


def train(name: OptimizerName, lr: float, graphed: bool) -> tuple[list[float], dict[str, Tensor]]:
    torch.manual_seed(0)
    config = BiLMConfig(filters=((1, 8), (3, 24)), dim=16, cell_dim=32, dropout=0.0)
    lm = LanguageModel(BiLM(config), Softmax(dim=16, vocab_size=V)).to(DEVICE)
    optimizer = make_optimizer(lm, name, lr=lr)
    generator = torch.Generator(DEVICE).manual_seed(0)

    def step(batch: LMBatch, state: BiLMState) -> StepResult:
        batch = LMBatch(*(x.to(DEVICE) for x in batch))
        negatives = lm.softmax.draw(20, generator)
        return train_step(lm, optimizer, batch, state, negatives, clip_norm=1.0)

    fit = GraphedStep(step, [generator], multiple=8) if graphed else step
    zeros = LSTMState(torch.zeros(B, 16, device=DEVICE), torch.zeros(B, 32, device=DEVICE))
    state, losses = [zeros] * 4, []
    for n, batch in enumerate(windows(16)):
        if n == 10:
            set_learning_rate(optimizer, lr / 10)
        # A graph must draw from the generator as seeded here, too.
        generator.manual_seed(n)
        result = fit(batch, state)
        state = result.state
        losses.append(result.losses.mean())
    return [loss.item() for loss in losses], lm.state_dict()


@pytest.mark.parametrize(("optimizer", "lr"), [("adamw", 1e-2), ("muon", 2e-3)])
def test_graphed_steps_equal_plain_steps(optimizer: OptimizerName, lr: float) -> None:
    losses, weights = train(optimizer, lr, graphed=True)
    expected_losses, expected = train(optimizer, lr, graphed=False)
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-2, atol=1e-3)
