"""All layers of both directions at once, for inference: four kernels per token.

A layer reads the output of the layer below, so it can work on a token one step later, at the same
time as that layer works on the next token. Such a step of all layers is a wave:

    wave       0   1   2   3
    layer 1    a   b   c
    layer 2        a   b   c

The LSTMs of a wave, L layers of 2 directions, are independent. As 2L lanes they are one batch of
matrices:

    pre = [x; h] W           one product, input and recurrent weights as one matrix
    c, m = gates(pre, c)     one kernel; starts from a given state where a sentence starts
    h = clip(m P)            one product, split into parts as in training, and one kernel, which
                             passes h on to the lane's next token and to the layer above

2 directions, L layers, 2L lanes, T steps, B batch rows, D dim, H cell dim, S parts of a sum.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.bilm.kernels import multiply
from elmore.bilm.kernels.gates import TILE_COLUMNS, TILE_ROWS, gates, num_parts, tile_indices
from elmore.bilm.lstm import ProjectedLSTM


class Waves:
    """The layers of both directions as one batch of matrices.

    Args:
        pairs: The forward and the backward LSTM of each layer.
        residual: Add the input of each layer but the first to its output.
    """

    def __init__(
        self, pairs: Sequence[tuple[ProjectedLSTM, ProjectedLSTM]], *, residual: bool
    ) -> None:
        lstms = [lstm for pair in pairs for lstm in pair]
        self._w = torch.stack(
            [torch.cat([a.input.weight, a.recurrent.weight], dim=1).detach() for a in lstms]
        )  # (2L, 4H, 2D)
        self._bias = torch.stack([lstm.input.bias.detach().float() for lstm in lstms])
        projections = (cast("nn.Linear", lstm.project) for lstm in lstms)
        p = torch.stack([linear.weight.detach().T for linear in projections])  # (2L, H, D)
        self._p_parts = p.reshape(len(p) * num_parts(p.shape[1]), -1, p.shape[2]).contiguous()
        self._cell_clip, self._projection_clip = (
            bound if bound is not None else float("inf")
            for bound in (lstms[0].cell_clip, lstms[0].projection_clip)
        )
        self._residual = residual

    def __call__(
        self,
        x: Float[Tensor, "T 2 B D"],
        starts: Bool[Tensor, "T 2 B"],
        start_output: Float[Tensor, "2*L b D"],
        start_cell: Float[Tensor, "2*L b H"],
    ) -> list[Tensor]:
        """Return the output (T, 2, B, D) of each layer, then output and cell after the last step.

        Args:
            x: Token vectors, each direction in the order in which it reads.
            starts: Whether a sentence starts at a step.
            start_output: The output before a sentence starts, for each row or, if b = 1, for all.
            start_cell: Likewise the cell, in float32.
        """
        T, _, B, D = x.shape
        lanes, H = len(self._w), self._w.shape[1] // 4
        L, S = lanes // 2, len(self._p_parts) // lanes
        waves = T + L - 1
        start_output, start_cell = (s.expand(-1, B, -1) for s in (start_output, start_cell))
        make = partial(torch.empty, dtype=x.dtype, device=x.device)
        keep = torch.ones(waves + 1, lanes, B, dtype=torch.float32, device=x.device)
        for j in range(L):
            keep[j : j + T, 2 * j : 2 * j + 2] = ~starts
        # Before its first token a lane computes on zeros, and the result is dropped.
        xh = torch.zeros(2, lanes, B, 2 * D, dtype=x.dtype, device=x.device)
        xh[0, :2, :, :D] = x[0]
        xh[0, :2, :, D:] = start_output[:2] * starts[0, :, :, None]
        cell = torch.zeros(lanes, B, H, dtype=torch.float32, device=x.device)
        pre, m = make(lanes, B, 4 * H), make(lanes * S, B, H // S)
        h_parts = make(lanes * S, B, D, dtype=torch.float32)
        out = make(waves, lanes, B, D)
        end_output, end_cell = make(lanes, B, D), torch.empty_like(cell)
        residual = 2 if self._residual else lanes  # the first lane that adds its input
        grid = (triton.cdiv(B, TILE_ROWS), triton.cdiv(D, TILE_COLUMNS), lanes)
        for wave in range(waves):
            current, following = xh[wave % 2], xh[1 - wave % 2]
            multiply(current, self._w.mT, pre)
            gates(pre, self._bias, cell, cell, keep[wave], start_cell, m, self._cell_clip)
            multiply(m, self._p_parts, h_parts)
            _pass_on[grid](
                h_parts, current, following, x[min(wave + 1, T - 1)], keep[wave + 1], start_output,
                out[wave], self._projection_clip, B, start_output.stride(0), start_output.stride(1),
                D, S, lanes, residual, TILE_ROWS, TILE_COLUMNS,
            )  # fmt: skip
            if (j := wave - T + 1) >= 0:  # layer j has read its last token
                end_output[2 * j : 2 * j + 2] = following[2 * j : 2 * j + 2, :, D:]
                end_cell[2 * j : 2 * j + 2] = cell[2 * j : 2 * j + 2]
        return [*(out[j : j + T, 2 * j : 2 * j + 2] for j in range(L)), end_output, end_cell]


# B is not a constant of the compiled kernel: it differs from batch to batch.


@triton.jit(do_not_specialize=["B"])
def _pass_on(
    parts, current, following, x, keep, start, out, clip, B, start_lane, start_row,
    D: tl.constexpr, S: tl.constexpr, LANES: tl.constexpr, RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute h = clip(sum of the parts), and put it where the next wave reads it.

    `current` and `following` are [x; h] of all lanes in this wave and in the next. Lanes from
    RESIDUAL on add their input.
    """
    lane = tl.program_id(2).to(tl.int64)
    row, column, mask = tile_indices(B, D, ROWS, COLUMNS)
    h = tl.zeros((ROWS, COLUMNS), tl.float32)
    for s in tl.static_range(S):
        h += tl.load(parts + ((lane * S + s) * B + row) * D + column, mask, 0)
    h = tl.minimum(tl.maximum(h, -clip), clip)
    kept = tl.load(keep + lane * B + row, row < B, 1) != 0
    at_start = tl.load(start + lane * start_lane + row * start_row + column, mask & (kept == 0), 0)
    own = (lane * B + row) * 2 * D + column
    tl.store(following + own + D, tl.where(kept, h, at_start).to(following.dtype.element_ty), mask)
    if lane >= RESIDUAL:
        h += tl.load(current + own, mask, 0).to(tl.float32)
    h = h.to(out.dtype.element_ty)
    tl.store(out + (lane * B + row) * D + column, h, mask)
    if lane < LANES - 2:
        tl.store(following + own + 4 * B * D, h, mask)
    if lane < 2:  # the lowest layer reads the text
        tl.store(following + own, tl.load(x + (lane * B + row) * D + column, mask, 0), mask)
