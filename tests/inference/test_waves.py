"""LSTMs in waves. Oracle: the plain LSTMs, one layer, direction and token at a time."""

import pytest
import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM
from tests.gpu import DEVICE, needs_kernels

pytestmark = needs_kernels


def make_bilm(**changes: object) -> BiLM:
    sizes = {"dim": 24, "cell_dim": 96, "cell_clip": 0.5, "projection_clip": 0.4}
    bilm = BiLM(BiLMConfig(**{**sizes, **changes})).to(DEVICE).eval()
    for lstm in (*bilm.forward_lstms, *bilm.backward_lstms):
        for linear in (lstm.input, lstm.recurrent, lstm.project):
            linear.weight.data.mul_(4)  # so that values are clipped
    return bilm


def run_lstms(
    bilm: BiLM, x: Tensor, starts: Tensor, output: Tensor, cell: Tensor
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Run the LSTMs token by token, and set the start state where a sentence starts."""
    T, L = len(x), bilm.config.num_layers
    outputs = [torch.empty_like(x) for _ in range(L)]
    end_output, end_cell = torch.empty_like(output), torch.empty_like(cell)
    for d, stack in enumerate((bilm.forward_lstms, bilm.backward_lstms)):
        y = x[:, d]  # (T, B, D)
        for j, lstm in enumerate(stack):
            lane = 2 * j + d
            h, c = torch.zeros_like(output[lane]), torch.zeros_like(cell[lane])
            for t in range(T):
                starts_here = starts[t, d, :, None]
                h, c = (
                    torch.where(starts_here, output[lane], h),
                    torch.where(starts_here, cell[lane], c),
                )
                before = LSTMState(h, c.to(h.dtype))
                new, (h, c) = lstm(y[t, :, None], state=before)
                residual = bilm.config.residual and j > 0
                outputs[j][t, d] = new[:, 0] + y[t] if residual else new[:, 0]
            end_output[lane], end_cell[lane] = h, c
            y = outputs[j][:, d]
    return outputs, end_output, end_cell


def run_both(bilm: BiLM, *, T: int = 6, B: int = 5, shared: bool = False) -> tuple[list, list]:
    """Run waves and plain LSTMs on the same random inputs; return outputs and final states of both.

    With `shared`, all sentences have the same start state.
    """
    from elmore.inference.waves import Waves

    D, H, lanes = bilm.config.dim, bilm.config.cell_dim, 2 * bilm.config.num_layers
    dtype = next(bilm.parameters()).dtype
    x = torch.randn(T, 2, B, D).to(DEVICE, dtype)
    starts = (torch.rand(T, 2, B) < 0.3).to(DEVICE)
    starts[0] = True
    rows = 1 if shared else B
    output = (0.3 * torch.randn(lanes, rows, D)).to(DEVICE, dtype)
    cell = (0.3 * torch.randn(lanes, rows, H)).to(DEVICE)
    pairs = list(zip(bilm.forward_lstms, bilm.backward_lstms, strict=True))
    actual = Waves(pairs, residual=bilm.config.residual)(x, starts, output, cell)
    outputs, *end = run_lstms(
        bilm, x, starts, output.expand(-1, B, -1).clone(), cell.expand(-1, B, -1).clone()
    )
    return actual, [*outputs, *end]


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({}, False),
        ({}, True),
        ({"residual": False, "num_layers": 3}, True),
        ({"num_layers": 1}, False),
        ({"cell_clip": None, "projection_clip": None}, True),
        ({"dim": 33, "cell_dim": 70}, False),
        ({"dim": 64, "cell_dim": 256}, True),
    ],
    ids=["paper", "shared", "no-residual", "one-layer", "no-clip", "odd-sizes", "split-product"],
)
@torch.no_grad()
def test_waves_equal_plain_lstms(changes: dict[str, object], shared: bool) -> None:
    for a, b in zip(*run_both(make_bilm(**changes), shared=shared), strict=True):
        # Large weights, in one case without clipping, amplify rounding errors.
        torch.testing.assert_close(a, b, rtol=1e-4, atol=5e-5)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter's bfloat16 differs from a GPU's")
@torch.no_grad()
def test_bfloat16_is_as_accurate_as_in_plain_lstms() -> None:
    bilm = make_bilm(dim=64, cell_dim=256, cell_clip=3.0, projection_clip=3.0)
    torch.manual_seed(1)
    _, exact = run_both(bilm, T=20, B=40)
    torch.manual_seed(1)
    waves, lstms = run_both(bilm.bfloat16(), T=20, B=40)
    waves_error, lstms_error = (
        sum(float((x.float() - y.float()).norm()) for x, y in zip(layers[:2], exact, strict=False))
        for layers in (waves, lstms)
    )
    assert waves_error < 1.1 * lstms_error
