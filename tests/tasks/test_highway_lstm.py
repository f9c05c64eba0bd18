"""The highway LSTM of SRL. Oracle: the equations of He et al. (2017) in NumPy, word by word."""

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.tasks.modules.highway_lstm import AlternatingLSTM, HighwayLSTM

WIDTH, H = 5, 4


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def run_layer(layer: HighwayLSTM, words: np.ndarray, keep: np.ndarray | float = 1) -> np.ndarray:
    """Run a layer over one sentence, given in the layer's reading direction."""
    g, i, f, o, r, carry = (w.numpy(force=True) for w in layer.input.weight.chunk(6))
    bias = [b.numpy(force=True) for b in layer.input.bias.chunk(6)]
    recurrent = [u.numpy(force=True) for u in layer.recurrent.chunk(5)]
    h, c, outputs = np.zeros(len(g)), np.zeros(len(g)), []
    for x in words:
        activations = [
            w @ x + u @ h + b for w, u, b in zip((g, i, f, o, r), recurrent, bias[:5], strict=True)
        ]
        candidate = np.tanh(activations[0])
        input_gate, forget, output, transform = map(sigmoid, activations[1:])
        c = input_gate * candidate + forget * c
        h = keep * (transform * output * np.tanh(c) + (1 - transform) * (carry @ x + bias[5]))
        outputs.append(h)
    return np.array(outputs)


def run_stack(stack: AlternatingLSTM, words: np.ndarray) -> np.ndarray:
    for number, layer in enumerate(stack.layers):
        direction = -1 if number % 2 else 1
        words = run_layer(layer, words[::direction])[::direction]
    return words


def new_stack(num_layers: int) -> AlternatingLSTM:
    stack = AlternatingLSTM(WIDTH, H, num_layers=num_layers).double()
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
    return stack


def batch(*lengths: int) -> tuple[Tensor, Tensor]:
    return torch.randn(len(lengths), max(lengths), WIDTH).double(), torch.tensor(lengths)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_layers_match_the_equations_in_alternating_directions(num_layers: int) -> None:
    stack = new_stack(num_layers)
    x, lengths = batch(6, 1, 4)

    output = stack(x, lengths)

    for row, words, length in zip(output, x, lengths, strict=True):
        expected = run_stack(stack, words[:length].numpy())
        np.testing.assert_allclose(row[:length].detach(), expected, atol=1e-12)
        assert not row[length:].any()


def test_padding_does_not_affect_the_output_and_gets_no_gradient() -> None:
    stack = new_stack(4)
    x, lengths = batch(3, 7, 5)
    mask = torch.arange(7) < lengths[:, None]
    padded = torch.where(mask[..., None], x, 100.0).requires_grad_()
    output = stack(padded, lengths)
    torch.testing.assert_close(output, stack(x, lengths), rtol=0, atol=0)
    output.square().sum().backward()
    assert padded.grad is not None
    assert padded.grad[mask].abs().amin() > 0
    assert not padded.grad[~mask].any()


def test_output_does_not_depend_on_the_order_of_the_batch() -> None:
    stack = new_stack(3)
    x, lengths = batch(3, 7, 5)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(stack(x[order], lengths[order]), stack(x, lengths)[order])


def test_initial_matrices_are_orthonormal_and_forget_biases_are_one() -> None:
    layer = HighwayLSTM(7, H)
    for matrix in (*layer.input.weight.chunk(6), *layer.recurrent.chunk(5)):
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(H))
    assert layer.input.bias.tolist() == [0.0] * 2 * H + [1.0] * H + [0.0] * 3 * H


def test_recurrent_dropout_uses_one_mask_for_all_steps_of_a_sentence() -> None:
    layer = HighwayLSTM(WIDTH, 50, dropout=0.4)
    x, lengths = torch.randn(20, 6, WIDTH), torch.full((20,), 6)

    output = layer(x, lengths)

    keep = (output[:, 0] != 0) / 0.6  # (B, H)
    assert 0.3 < (keep == 0).float().mean() < 0.5
    assert (keep[0] != keep[1]).any()
    for b in (0, 1):
        expected = run_layer(layer, x[b].numpy(), keep[b].numpy())
        np.testing.assert_allclose(output[b].detach(), expected, atol=1e-5)
    assert not (layer.eval()(x, lengths) == 0).any()
