"""Oracles: the equations of He et al. (2017) in numpy, word by word; finite differences."""

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.tasks.modules.highway_lstm import (
    AlternatingLSTM,
    HighwayLSTM,
    _Recurrence,
    flip,
    flip_index,
)

WIDTH, H = 5, 4


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def run_layer(layer: HighwayLSTM, words: np.ndarray) -> np.ndarray:
    """One sentence, in the order in which the layer reads it; a matrix for each gate."""
    g, i, f, o, r, across = (w.numpy(force=True) for w in layer.input.weight.chunk(6))
    bias = [b.numpy(force=True) for b in layer.input.bias.chunk(6)]
    back = [u.numpy(force=True) for u in layer.recurrent.chunk(5)]
    h, c, outputs = np.zeros(H), np.zeros(H), []
    for x in words:
        sums = [w @ x + u @ h + b for w, u, b in zip((g, i, f, o, r), back, bias[:5], strict=True)]
        candidate = np.tanh(sums[0])
        takes, forgets, puts_out, uses = map(sigmoid, sums[1:])
        c = takes * candidate + forgets * c
        h = uses * (puts_out * np.tanh(c)) + (1 - uses) * (across @ x + bias[5])
        outputs.append(h)
    return np.array(outputs)


def run_stack(stack: AlternatingLSTM, words: np.ndarray) -> np.ndarray:
    for number, layer in enumerate(stack.layers):
        step = -1 if number % 2 else 1
        words = run_layer(layer, words[::step])[::step]
    return words


def new_stack(num_layers: int, dropout: float = 0.0) -> AlternatingLSTM:
    stack = AlternatingLSTM(WIDTH, H, num_layers=num_layers, dropout=dropout).double()
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
    return stack


def batch(*lengths: int) -> tuple[Tensor, Tensor]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randn(*mask.shape, WIDTH, dtype=torch.double), mask


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_layers_are_those_of_the_paper_by_turns_in_both_directions(num_layers: int) -> None:
    stack = new_stack(num_layers)
    x, mask = batch(6, 1, 4)

    output = stack(x, mask)

    for row, words, real in zip(output, x, mask, strict=True):
        expected = run_stack(stack, words[real].numpy())
        np.testing.assert_allclose(row[real].detach(), expected, atol=1e-12)
        assert not row[~real].any()


def test_padding_changes_nothing_whatever_it_is() -> None:
    stack = new_stack(4)
    x, mask = batch(3, 7, 5)
    other = torch.where(mask[..., None], x, 100.0)
    torch.testing.assert_close(stack(other, mask), stack(x, mask), rtol=0, atol=0)


def test_the_order_of_a_batch_does_not_matter() -> None:
    stack = new_stack(3)
    x, mask = batch(3, 7, 5)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(stack(x[order], mask[order]), stack(x, mask)[order])


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("T", [1, 4])
def test_gradients_are_those_of_finite_differences(T: int, dropout: bool) -> None:
    x = torch.randn(T, 3, 6 * H, dtype=torch.double, requires_grad=True)
    weight = torch.randn(5 * H, H, dtype=torch.double, requires_grad=True)
    keep = 2 * torch.randint(2, (3, H)).double() if dropout else None
    assert torch.autograd.gradcheck(lambda x, w: _Recurrence.apply(x, w, keep), (x, weight))


def test_padding_gets_no_gradient() -> None:
    stack = new_stack(3)
    x, mask = batch(2, 5)
    x.requires_grad_()
    stack(x, mask).square().sum().backward()
    assert x.grad is not None
    assert x.grad[mask].abs().amin() > 0
    assert not x.grad[~mask].any()


def test_matrices_are_orthonormal_and_gates_remember() -> None:
    layer = HighwayLSTM(7, H)
    for matrix in (*layer.input.weight.chunk(6), *layer.recurrent.chunk(5)):
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(H))
    assert layer.input.bias.tolist() == [0.0] * 2 * H + [1.0] * H + [0.0] * 3 * H


def test_dropout_takes_the_same_dimensions_at_every_step() -> None:
    layer = HighwayLSTM(WIDTH, 50, dropout=0.4)
    x = torch.randn(6, 20, WIDTH)

    dropped = layer(x) == 0  # (T, B, H)

    assert (dropped == dropped[0]).all()
    assert 0.3 < dropped[0].float().mean() < 0.5
    assert (dropped[0, 0] != dropped[0, 1]).any()
    assert not (layer.eval()(x) == 0).any()


def test_what_is_dropped_is_not_seen_by_the_next_step() -> None:
    """Oracle: the equations, with the mask where the paper has it."""
    x, weight = torch.randn(3, 2, 6 * H), torch.randn(5 * H, H)
    keep = torch.tensor([[0.0, 2.0, 2.0, 0.0], [2.0, 0.0, 2.0, 2.0]])
    h = c = torch.zeros(2, H)
    expected = []
    for x_t in x:
        g, i, f, o, r = (x_t[:, : 5 * H] + h @ weight.T).chunk(5, dim=-1)
        c = i.sigmoid() * g.tanh() + f.sigmoid() * c
        h = keep * (r.sigmoid() * o.sigmoid() * c.tanh() + (-r).sigmoid() * x_t[:, 5 * H :])
        expected.append(h)
    torch.testing.assert_close(_Recurrence.apply(x, weight, keep), torch.stack(expected))


def test_flip_leaves_padding_where_it_is() -> None:
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    index = flip_index(mask)
    assert index.T.tolist() == [[2, 1, 0, 3], [3, 2, 1, 0]]
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(flip(flip(x, index), index), x)
