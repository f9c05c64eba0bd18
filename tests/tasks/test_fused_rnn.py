"""Fused RNN kernels. Oracles: PyTorch's packed RNNs, and the highway LSTM in plain PyTorch."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from elmore.bilm import kernels
from elmore.tasks.modules.highway_lstm import AlternatingLSTM
from elmore.tasks.modules.rnn import BiGRU, BiLSTM
from tests.gpu import DEVICE, needs_kernels

pytestmark = needs_kernels


@pytest.fixture(autouse=True)
def plain_reference() -> Iterator[None]:
    """Disable cuDNN, which computes in TF32 and has no gradients in eval mode."""
    with torch.backends.cudnn.flags(enabled=False):
        yield


def run(
    module: nn.Module, x: Tensor, lengths: Tensor, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> list[Tensor]:
    """Return the output and the gradients of the input and of all weights."""
    monkeypatch.setattr(kernels, "usable", lambda _: fused)
    x = x.clone().requires_grad_()
    module.zero_grad()
    torch.manual_seed(5)  # the same dropout
    y = module(x, lengths)
    y.backward(torch.linspace(-1, 1, y.numel(), device=y.device).view_as(y))
    assert x.grad is not None
    return [y.detach(), x.grad, *(p.grad for p in module.parameters() if p.grad is not None)]


def check(
    module: nn.Module, lengths: list[int], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module.to(DEVICE)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    x = torch.randn(len(lengths), max(lengths), width).to(DEVICE)
    expected = run(module, x, torch.tensor(lengths), False, monkeypatch)
    actual = run(module, x, torch.tensor(lengths), True, monkeypatch)
    # Products are in TF32, with a 10-bit mantissa, on a GPU and in float32 in the interpreter.
    close = {"rtol": 2e-2, "atol": 2e-2} if DEVICE == "cuda" else {"rtol": 1e-4, "atol": 1e-5}
    for ours, reference in zip(actual, expected, strict=True):
        scale = reference.abs().max().clamp(min=1e-6)
        torch.testing.assert_close(ours / scale, reference / scale, **close)


@pytest.mark.parametrize("hidden", [5, 130])  # 130 exceeds the tile of a kernel program
def test_two_layer_lstm_equals_pytorch(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(BiLSTM(7, hidden, num_layers=2), [3, 1, 4], 7, monkeypatch)


@pytest.mark.parametrize("hidden", [6, 130])
def test_gru_equals_pytorch(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(BiGRU(4, hidden), [2, 5, 1], 4, monkeypatch)


@pytest.mark.parametrize(("hidden", "dropout"), [(9, 0.0), (9, 0.4), (130, 0.4)])
def test_highway_lstm_equals_plain_pytorch(
    hidden: int, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = AlternatingLSTM(6, hidden, num_layers=3, dropout=dropout)
    check(module, [3, 4, 2], 6, monkeypatch)


def test_batch_may_exceed_the_tile_of_a_kernel_program(monkeypatch: pytest.MonkeyPatch) -> None:
    check(BiGRU(3, 4), [1 + n % 3 for n in range(19)], 3, monkeypatch)


def test_dropout_between_layers_is_applied_only_in_training_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = BiLSTM(7, 5, num_layers=2, dropout=0.9)
    check(module.eval(), [3, 1, 4], 7, monkeypatch)
    x, lengths = torch.ones(1, 4, 7, device=DEVICE), torch.tensor([4])
    no_dropout, *_ = run(module, x, lengths, True, monkeypatch)
    (first, *_), (second, *_) = (
        run(module.train(), x, lengths, True, monkeypatch) for _ in range(2)
    )
    assert torch.equal(first, second)  # `run` sets the seed
    assert not torch.equal(first, no_dropout)
