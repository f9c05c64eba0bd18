"""Oracles: torch.nn.LSTM with proj_size, which knows no clipping; numpy for the clipping."""

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.bilm import lstm as lstm_module
from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from tests.oracles.released_bilm import run_lstm


def all_real(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool)


def torch_twin(ours: ProjectedLSTM) -> torch.nn.LSTM:
    theirs = torch.nn.LSTM(5, 8, proj_size=3, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.input.weight)
        theirs.bias_ih_l0.copy_(ours.input.bias)
        theirs.weight_hh_l0.copy_(ours.recurrent.weight)
        theirs.bias_hh_l0.zero_()
        theirs.weight_hr_l0.copy_(ours.project.weight)
    return theirs


def test_values_and_gradients_match_torch() -> None:
    ours = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8)
    theirs = torch_twin(ours)
    x = torch.randn(2, 7, 5, requires_grad=True)
    weights = torch.randn(2, 7, 3)

    expected, (h, c) = theirs(x)
    (expected * weights).sum().backward()
    expected_grad, x.grad = x.grad, None
    output, state = ours(x, all_real(x))
    (output * weights).sum().backward()

    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(state, LSTMState(h[0], c[0]))
    torch.testing.assert_close(x.grad, expected_grad)
    torch.testing.assert_close(ours.input.weight.grad, theirs.weight_ih_l0.grad)
    torch.testing.assert_close(ours.recurrent.weight.grad, theirs.weight_hh_l0.grad)
    torch.testing.assert_close(ours.input.bias.grad, theirs.bias_ih_l0.grad)
    torch.testing.assert_close(ours.project.weight.grad, theirs.weight_hr_l0.grad)


@torch.no_grad()
def test_clipping_matches_numpy() -> None:
    ours = ProjectedLSTM(in_dim=4, dim=3, cell_dim=6, cell_clip=0.2, projection_clip=0.05)
    with torch.no_grad():
        for p in ours.parameters():
            p.normal_()
    x = torch.randn(1, 9, 4)
    output, state = ours(x, all_real(x))

    # The oracle wants TensorFlow's layout: one matrix, gates i g f o, forget bias without its 1.
    def theirs(w: Tensor) -> np.ndarray:
        i, f, g, o = w.numpy().reshape(4, 6, -1)
        return np.concatenate([i, g, f, o]).T

    bias = theirs(ours.input.bias)[0]
    bias[12:18] -= 1
    cell = {
        "W_0": np.concatenate([theirs(ours.input.weight), theirs(ours.recurrent.weight)]),
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
def test_state_split_at_any_point_equals_the_whole(cut: int) -> None:
    lstm = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8, cell_clip=0.3, projection_clip=0.1)
    x = torch.randn(2, 7, 5)
    whole, end = lstm(x, all_real(x))
    first, state = lstm(x[:, :cut], all_real(x[:, :cut]))
    second, end_of_second = lstm(x[:, cut:], all_real(x[:, cut:]), state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(end_of_second, end)


def test_a_shorter_row_ends_with_the_state_of_its_own_last_token() -> None:
    lstm = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8)
    x = torch.randn(2, 6, 5)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    output, state = lstm(x, mask)
    alone, state_alone = lstm(x[1:, :4], all_real(x[1:, :4]))
    torch.testing.assert_close(output[1:, :4], alone)
    torch.testing.assert_close(state.cell[1:], state_alone.cell)
    torch.testing.assert_close(state.output[1:], state_alone.output)


def test_blocks_of_the_input_product_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    lstm = ProjectedLSTM(in_dim=5, dim=3, cell_dim=8)
    x = torch.randn(2, 7, 5)
    whole, _ = lstm(x, all_real(x))
    monkeypatch.setattr(lstm_module, "_TOKENS_AT_ONCE", 4)
    torch.testing.assert_close(lstm(x, all_real(x))[0], whole)


def test_without_projection_the_output_is_the_gated_cell() -> None:
    ours = ProjectedLSTM(in_dim=5, dim=8, cell_dim=8, project=False, projection_clip=0.001)
    theirs = torch.nn.LSTM(5, 8, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.input.weight)
        theirs.bias_ih_l0.copy_(ours.input.bias)
        theirs.weight_hh_l0.copy_(ours.recurrent.weight)
        theirs.bias_hh_l0.zero_()
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(ours(x, all_real(x))[0], theirs(x)[0])


def test_weights_are_drawn_as_the_released_code_draws_them() -> None:
    lstm = ProjectedLSTM(in_dim=64, dim=64, cell_dim=256)
    bound = (6 / (128 + 1024)) ** 0.5  # Glorot, over the one matrix of both inputs
    for weight in (lstm.input.weight, lstm.recurrent.weight):
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    i, f, g, o = lstm.input.bias.chunk(4)
    assert (f == 1).all()
    assert not torch.cat([i, g, o]).any()
