"""The projected LSTM. Oracles: torch.nn.LSTM(proj_size); an LSTM in NumPy for clipping."""

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.bilm import lstm as lstm_module
from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from tests.oracles.released_bilm import run_lstm


def full_mask(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool)


def pytorch_lstm(ours: ProjectedLSTM) -> torch.nn.LSTM:
    reference = torch.nn.LSTM(5, 8, proj_size=3, batch_first=True)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(ours.input.weight)
        reference.bias_ih_l0.copy_(ours.input.bias)
        reference.weight_hh_l0.copy_(ours.recurrent.weight)
        reference.bias_hh_l0.zero_()
        reference.weight_hr_l0.copy_(ours.project.weight)
    return reference


def test_outputs_and_gradients_equal_pytorch() -> None:
    ours = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8)
    reference = pytorch_lstm(ours)
    x = torch.randn(2, 7, 5, requires_grad=True)
    weights = torch.randn(2, 7, 3)

    expected, (h, c) = reference(x)
    (expected * weights).sum().backward()
    expected_grad, x.grad = x.grad, None
    output, state = ours(x, full_mask(x))
    (output * weights).sum().backward()

    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(state, LSTMState(h[0], c[0]))
    torch.testing.assert_close(x.grad, expected_grad)
    torch.testing.assert_close(ours.input.weight.grad, reference.weight_ih_l0.grad)
    torch.testing.assert_close(ours.recurrent.weight.grad, reference.weight_hh_l0.grad)
    torch.testing.assert_close(ours.input.bias.grad, reference.bias_ih_l0.grad)
    torch.testing.assert_close(ours.project.weight.grad, reference.weight_hr_l0.grad)


@torch.no_grad()
def test_clipping_equals_numpy() -> None:
    ours = ProjectedLSTM(in_dim=4, dim=3, cell_dim=6, cell_clip=0.2, projection_clip=0.05)
    with torch.no_grad():
        for p in ours.parameters():
            p.normal_()
    x = torch.randn(1, 9, 4)
    output, state = ours(x, full_mask(x))

    # The oracle expects TensorFlow's layout: one matrix, gates i g f o, forget bias minus 1.
    def to_tensorflow(w: Tensor) -> np.ndarray:
        i, f, g, o = w.numpy().reshape(4, 6, -1)
        return np.concatenate([i, g, f, o]).T

    bias = to_tensorflow(ours.input.bias)[0]
    bias[12:18] -= 1
    cell = {
        "W_0": np.concatenate(
            [to_tensorflow(ours.input.weight), to_tensorflow(ours.recurrent.weight)]
        ),
        "B": bias,
        "W_P_0": ours.project.weight.numpy().T,
    }
    expected, (_, c) = run_lstm(
        list(x[0].numpy()), cell, {"cell_clip": 0.2, "proj_clip": 0.05}, (np.zeros(3), np.zeros(6))
    )
    np.testing.assert_allclose(output[0], expected, atol=1e-6)
    np.testing.assert_allclose(state.cell[0], c, atol=1e-6)
    assert output.abs().max() == pytest.approx(0.05)
    assert state.cell.abs().max() <= 0.2


@pytest.mark.parametrize("cut", range(1, 7))
def test_two_windows_with_carried_state_equal_one_long_window(cut: int) -> None:
    lstm = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8, cell_clip=0.3, projection_clip=0.1)
    x = torch.randn(2, 7, 5)
    expected, expected_state = lstm(x, full_mask(x))
    first, state = lstm(x[:, :cut], full_mask(x[:, :cut]))
    second, second_state = lstm(x[:, cut:], full_mask(x[:, cut:]), state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), expected)
    torch.testing.assert_close(second_state, expected_state)


def test_state_of_a_padded_row_is_the_state_after_its_last_token() -> None:
    lstm = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8)
    x = torch.randn(2, 6, 5)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    output, state = lstm(x, mask)
    expected, expected_state = lstm(x[1:, :4], full_mask(x[1:, :4]))
    torch.testing.assert_close(output[1:, :4], expected)
    torch.testing.assert_close(state.cell[1:], expected_state.cell)
    torch.testing.assert_close(state.output[1:], expected_state.output)


def test_outputs_do_not_depend_on_the_chunk_size_of_the_input_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lstm = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8)
    x = torch.randn(2, 7, 5)
    expected, _ = lstm(x, full_mask(x))
    monkeypatch.setattr(lstm_module, "_TOKENS_AT_ONCE", 4)
    torch.testing.assert_close(lstm(x, full_mask(x))[0], expected)


def test_outputs_without_projection_equal_pytorch() -> None:
    ours = ProjectedLSTM(in_dim=5, dim=8, cell_dim=8, project=False, projection_clip=0.001)
    reference = torch.nn.LSTM(5, 8, batch_first=True)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(ours.input.weight)
        reference.bias_ih_l0.copy_(ours.input.bias)
        reference.weight_hh_l0.copy_(ours.recurrent.weight)
        reference.bias_hh_l0.zero_()
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(ours(x, full_mask(x))[0], reference(x)[0])


def test_weights_are_initialized_as_in_the_released_code() -> None:
    lstm = ProjectedLSTM(in_dim=64, dim=64, cell_dim=256)
    bound = (6 / (128 + 1024)) ** 0.5  # Glorot, for one matrix of shape (128, 1024)
    for weight in (lstm.input.weight, lstm.recurrent.weight):
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    i, f, g, o = lstm.input.bias.chunk(4)
    assert (f == 1).all()
    assert not torch.cat([i, g, o]).any()
