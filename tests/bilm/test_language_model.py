"""The training objective. Oracles: losses and Adagrad in NumPy; invariants."""

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Negatives, Softmax
from elmore.text.characters import encode_words
from elmore.text.windows import LMBatch
from elmore.training.optim import OptimizerName, clip_gradients, make_optimizer
from tests.oracles import training as oracle

WORDS = ["the", "cat", "sat", "on", "a", "mat", "<S>"]
V = 9


@pytest.fixture
def lm(bilm: BiLM) -> LanguageModel:
    return LanguageModel(bilm, Softmax(dim=bilm.config.dim, vocab_size=V)).eval()


def window(B: int = 3, T: int = 5) -> LMBatch:
    words = torch.randint(len(WORDS), (2, B, T))
    keep_state = torch.ones(2, B, T, dtype=torch.bool)
    return LMBatch(encode_words(WORDS), words, torch.randint(V, (2, B, T)), keep_state)


def test_losses_equal_numpy_given_the_top_layer(lm: LanguageModel) -> None:
    batch = window()
    output = lm(batch)
    mask = torch.ones(3, 5, dtype=torch.bool)
    weight, bias = lm.softmax.weight.detach().numpy(), lm.softmax.bias.detach().numpy()
    expected = []
    for d, words in enumerate(batch.words):
        # Batches contain the text of the backward direction reversed. The biLM reverses it itself.
        reverse = (lambda x: x.flip(1)) if d else (lambda x: x)
        layers = lm.bilm(batch.distinct[reverse(words)], mask).layers
        top = reverse(layers[:, -1].chunk(2, dim=-1)[d]).detach().numpy()  # (B, T, D)
        nll = [
            oracle.full_nll(top[b, t], int(batch.targets[d, b, t]), weight, bias)
            for b in range(3)
            for t in range(5)
        ]
        expected.append(np.mean(nll))
    np.testing.assert_allclose(output.losses.numpy(), expected, rtol=1e-5)
    assert output.loss.item() == pytest.approx(np.mean(expected), rel=1e-5)


def test_loss_is_sampled_if_negatives_are_given(lm: LanguageModel) -> None:
    batch = window()
    all_words = Negatives(torch.arange(V), torch.tensor(1e6))
    torch.testing.assert_close(lm(batch, None, all_words).loss, lm(batch).loss)
    two_words = Negatives(torch.tensor([0, 4]), torch.tensor(3.0))
    assert lm(batch, None, two_words).loss < lm(batch).loss


def test_two_windows_with_carried_state_equal_one_long_window(lm: LanguageModel) -> None:
    batch = window(T=8)
    windows = [
        LMBatch(batch.distinct, *(x[..., cut] for x in batch[1:]))
        for cut in (slice(0, 5), slice(5, 8))
    ]
    expected = lm(batch)
    first = lm(windows[0])
    second = lm(windows[1], first.state)
    torch.testing.assert_close((5 * first.loss + 3 * second.loss) / 8, expected.loss)
    torch.testing.assert_close(second.state, expected.state)


@pytest.mark.parametrize("start", [0, 3])
def test_state_is_reset_at_the_start_of_a_sentence(lm: LanguageModel, start: int) -> None:
    batch = window(T=8)
    batch.keep_state[:, 1, start] = False
    state = lm(window()).state
    actual = lm(batch, state)
    row = LMBatch(batch.distinct, *(x[:, 1:2, start:] for x in batch[1:]))
    separate = lm(row._replace(keep_state=torch.ones_like(row.keep_state)))
    for after, expected in zip(actual.state, separate.state, strict=True):
        torch.testing.assert_close(after.output[1:2], expected.output)
        torch.testing.assert_close(after.cell[1:2], expected.cell)


def test_returned_state_has_no_gradient(lm: LanguageModel) -> None:
    state = lm(window()).state
    assert len(state) == 2 * lm.bilm.config.num_layers
    assert not any(value.requires_grad for layer in state for value in layer)


def test_directions_are_independent(lm: LanguageModel) -> None:
    batch, other = window(), window()
    mixed = LMBatch(
        batch.distinct,
        torch.stack([batch.words[0], other.words[1]]),
        torch.stack([batch.targets[0], other.targets[1]]),
        batch.keep_state,
    )
    assert lm(mixed).losses[0] == lm(batch).losses[0]
    assert lm(mixed).losses[1] == lm(other).losses[1]


def test_only_words_of_the_batch_have_a_gradient_with_word_input() -> None:
    config = BiLMConfig(vocab_size=V, dim=8, cell_dim=16)
    lm = LanguageModel(BiLM(config), Softmax(dim=8, vocab_size=V))
    distinct = torch.tensor([1, 4, 5])
    words = torch.randint(3, (2, 2, 4))
    keep_state = torch.ones_like(words, dtype=torch.bool)
    lm(LMBatch(distinct, words, torch.randint(V, (2, 2, 4)), keep_state)).loss.backward()
    table = lm.bilm.encode.embed.weight.grad
    assert table is not None
    assert set(table.any(dim=1).nonzero().flatten().tolist()) <= {1, 4, 5}


def test_dropout_is_applied_to_the_inputs_of_all_lstms_and_of_the_softmax(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, ...]] = []

    def drop(x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return x

    monkeypatch.setattr(lm.bilm.dropout, "forward", drop)
    lm(window())
    D = lm.bilm.config.dim
    assert shapes == [(3, 5, D)] * 4 + [(2, 5, 3, D)]


def test_three_steps_of_adagrad_equal_numpy(lm: LanguageModel) -> None:
    """As in bilm-tf, losses are summed over the window and gradients clipped by global norm."""
    T, clip = 5, 1.2  # between the smallest and the largest gradient norm
    optimizer = make_optimizer(lm, "adagrad", lr=0.2)
    start = {name: p.detach().numpy().copy() for name, p in lm.named_parameters()}
    gradients, norms, state = [], [], None
    for _ in range(3):
        output = lm(window(T=T), state)
        state = output.state
        optimizer.zero_grad()
        (output.loss * T).backward()
        gradients.append({name: p.grad.numpy().copy() for name, p in lm.named_parameters()})
        norms.append(clip_gradients(lm.parameters(), clip).item())
        optimizer.step()
    assert min(norms) < clip < max(norms)
    expected = oracle.adagrad(start, gradients, lr=0.2, clip=clip, accumulator=1.0)
    for name, p in lm.named_parameters():
        np.testing.assert_allclose(p.detach().numpy(), expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "lr"), [("adamw", 0.02), ("muon", 0.02), ("adagrad", 0.4)])
def test_training_on_one_batch_reduces_its_loss(
    lm: LanguageModel, name: OptimizerName, lr: float
) -> None:
    batch = window()
    optimizer = make_optimizer(lm, name, lr=lr)
    generator = torch.Generator().manual_seed(0)
    before = lm(batch).loss.item()
    for _ in range(100):
        loss = lm.train()(batch, None, lm.softmax.draw(6, generator)).loss
        optimizer.zero_grad()
        (5 * loss).backward()
        clip_gradients(lm.parameters(), 10.0)
        optimizer.step()
    assert lm.eval()(batch).loss.item() < 0.6 * before


def test_gradient_norm_is_nan_if_a_gradient_is_nan(lm: LanguageModel) -> None:
    lm(window()).loss.backward()
    assert lm.softmax.bias.grad is not None
    lm.softmax.bias.grad[0] = torch.nan
    assert clip_gradients(lm.parameters(), 10.0).isnan()
