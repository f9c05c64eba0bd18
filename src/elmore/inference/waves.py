"""All LSTMs at once, for inference: four kernel launches per step, for any number of layers.

Layer 2 works on token t while layer 1 works on token t + 1 (wavefront parallelism). Such a step of
all layers is a wave:

    wave       0   1   2   3
    layer 1    a   b   c
    layer 2        a   b   c

The 2L LSTMs of a wave are independent, so each product is one batch of matrices:

    pre = [x; h] W           one product, input and recurrent weights as one matrix
    c, m = gates(pre, c)     one kernel; starts from a given state where a sentence starts
    h = clip(m P)            one split-K product (see `num_parts`) and one kernel, which writes h
                             where the next token and the layer above read it

2 directions, L layers, T steps, B batch rows, D dim, H cell dim, S parts of a sum.
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
        num_lstms, H = len(self._w), self._w.shape[1] // 4
        L, S = num_lstms // 2, len(self._p_parts) // num_lstms
        waves = T + L - 1
        start_output, start_cell = (s.expand(-1, B, -1) for s in (start_output, start_cell))
        make = partial(torch.empty, dtype=x.dtype, device=x.device)
        keep = torch.ones(waves + 1, num_lstms, B, dtype=torch.float32, device=x.device)
        for j in range(L):
            keep[j : j + T, 2 * j : 2 * j + 2] = ~starts
        # Upper layers have no token in the first waves: they start from zeros, and their results
        # are discarded.
        xh = torch.zeros(2, num_lstms, B, 2 * D, dtype=x.dtype, device=x.device)
        xh[0, :2, :, :D] = x[0]
        xh[0, :2, :, D:] = start_output[:2] * starts[0, :, :, None]
        cell = torch.zeros(num_lstms, B, H, dtype=torch.float32, device=x.device)
        pre, m = make(num_lstms, B, 4 * H), make(num_lstms * S, B, H // S)
        h_parts = make(num_lstms * S, B, D, dtype=torch.float32)
        out = make(waves, num_lstms, B, D)
        end_output, end_cell = make(num_lstms, B, D), torch.empty_like(cell)
        residual = 2 if self._residual else num_lstms  # the first LSTM that adds its input
        grid = (triton.cdiv(B, TILE_ROWS), triton.cdiv(D, TILE_COLUMNS), num_lstms)
        for wave in range(waves):
            current, following = xh[wave % 2], xh[1 - wave % 2]
            multiply(current, self._w.mT, pre)
            gates(pre, self._bias, cell, cell, keep[wave], start_cell, m, self._cell_clip)
            multiply(m, self._p_parts, h_parts)
            _pass_on[grid](
                h_parts, current, following, x[min(wave + 1, T - 1)], keep[wave + 1], start_output,
                out[wave], self._projection_clip, B, start_output.stride(0), start_output.stride(1),
                D, S, num_lstms, residual, TILE_ROWS, TILE_COLUMNS,
            )  # fmt: skip
            if (j := wave - T + 1) >= 0:  # layer j + 1 has read its last token
                end_output[2 * j : 2 * j + 2] = following[2 * j : 2 * j + 2, :, D:]
                end_cell[2 * j : 2 * j + 2] = cell[2 * j : 2 * j + 2]
        return [*(out[j : j + T, 2 * j : 2 * j + 2] for j in range(L)), end_output, end_cell]


@triton.jit(do_not_specialize=["B"])  # B changes from batch to batch
def _pass_on(
    parts, current, following, x, keep, start, out, clip, B, start_lstm, start_row,
    D: tl.constexpr, S: tl.constexpr, NUM_LSTMS: tl.constexpr, FIRST_RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute h = clip(sum of the parts), and put it where the next wave reads it.

    `current` and `following` hold [x; h] of all LSTMs in this wave and in the next. LSTMs from
    index FIRST_RESIDUAL on add their input.
    """
    lstm = tl.program_id(2).to(tl.int64)
    row, column, mask = tile_indices(B, D, ROWS, COLUMNS)
    h = tl.zeros((ROWS, COLUMNS), tl.float32)
    for s in tl.static_range(S):
        h += tl.load(parts + ((lstm * S + s) * B + row) * D + column, mask, 0)
    h = tl.minimum(tl.maximum(h, -clip), clip)
    kept = tl.load(keep + lstm * B + row, row < B, 1) != 0
    at_start = tl.load(start + lstm * start_lstm + row * start_row + column, mask & (kept == 0), 0)
    own = (lstm * B + row) * 2 * D + column
    tl.store(following + own + D, tl.where(kept, h, at_start).to(following.dtype.element_ty), mask)
    if lstm >= FIRST_RESIDUAL:
        h += tl.load(current + own, mask, 0).to(tl.float32)
    h = h.to(out.dtype.element_ty)
    tl.store(out + (lstm * B + row) * D + column, h, mask)
    if lstm < NUM_LSTMS - 2:
        tl.store(following + own + 4 * B * D, h, mask)  # x of the same direction, one layer up
    if lstm < 2:  # the first layer reads the next token vector
        tl.store(following + own, tl.load(x + (lstm * B + row) * D + column, mask, 0), mask)
