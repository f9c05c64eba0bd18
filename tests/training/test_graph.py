"""Oracle: the same steps, not recorded."""

import pytest
import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.softmax import Softmax
from elmore.text.characters import encode_words
from elmore.text.windows import LMBatch
from elmore.training.graph import GraphedStep
from elmore.training.optim import clip_gradients, make_optimizer, set_learning_rate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
V, B, T = 200, 4, 5


def windows(count: int) -> list[LMBatch]:
    draw = torch.Generator().manual_seed(0)
    found = []
    for n in range(count):
        # Sizes that fill up to one and the same, and to another.
        size = (5, 7, 8, 12)[n % 4]
        found.append(
            LMBatch(
                encode_words([f"w{i}" for i in range(n, n + size)]),
                torch.randint(size, (2, B, T), generator=draw),
                torch.randint(V, (2, B, T), generator=draw),
                torch.rand(2, B, T, generator=draw) < 0.8,
            )
        )
    return found


def train(graphed: bool) -> tuple[list[float], dict[str, Tensor]]:
    torch.manual_seed(0)
    config = BiLMConfig(filters=((1, 8), (3, 24)), dim=16, cell_dim=32, dropout=0.0)
    lm = LanguageModel(BiLM(config), Softmax(dim=16, vocab_size=V)).cuda()
    optimizer = make_optimizer(lm, lr=0.01)
    draw = torch.Generator("cuda").manual_seed(0)

    def step(batch: LMBatch, state: BiLMState) -> tuple[tuple[Tensor, ...], BiLMState]:
        batch = LMBatch(*(x.cuda() for x in batch))
        output = lm(batch, state, lm.softmax.draw(20, draw))
        optimizer.zero_grad()
        output.loss.backward()
        norm = clip_gradients(lm.parameters(), 1.0)
        optimizer.step()
        return (output.loss.detach(), norm), output.state

    fit = GraphedStep(step, [draw], multiple=8) if graphed else step
    zeros = LSTMState(torch.zeros(B, 16).cuda(), torch.zeros(B, 32).cuda())
    state, losses = [zeros] * 4, []
    for n, batch in enumerate(windows(16)):
        if n == 10:
            set_learning_rate(optimizer, 0.001)
        # Also inside a recording, randomness starts where the generators stand.
        draw.manual_seed(n)
        (loss, _), state = fit(batch, state)
        losses.append(loss)
    return [loss.item() for loss in losses], lm.state_dict()


def test_recorded_steps_equal_the_others() -> None:
    losses, weights = train(graphed=True)
    expected_losses, expected = train(graphed=False)
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-2, atol=1e-3)
