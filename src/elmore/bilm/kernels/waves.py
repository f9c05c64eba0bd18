"""All layers of both directions at once, for inference: four kernels a token of the text.

A layer reads what the one below has made of a token, so it can work one token behind it, at the
same time. Such a step of all layers is a wave:

    wave       0   1   2   3
    layer 1    a   b   c
    layer 2        a   b   c

The lanes of a wave, L layers of 2 directions, are independent, so they are one batch of matrices:

    pre = [x; h] W          one product, input and recurrent weights as one matrix
    c, m = gates(pre, c)    one kernel; c = 0 where a sentence starts
    h = clip(m P)           one product, its sum in parts as in training, and one kernel, which
                            takes h to the lane's next token and to the layer above

Nothing is kept but the outputs: a wave works in the memory of the one before.

2 directions, L layers, 2L lanes, T tokens, B streams, D token dim, H cell dim, S parts of a sum.
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
from elmore.bilm.kernels.lstm import (
    TILE_COLUMNS,
    TILE_ROWS,
    own_tile,
    parts_of,
    read_gates,
    tanh,
)
from elmore.bilm.lstm import ProjectedLSTM


class Lanes:
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
        self._p_parts = p.reshape(len(p) * parts_of(p.shape[1]), -1, p.shape[2]).contiguous()
        self._clips = [
            bound if bound is not None else float("inf")
            for bound in (lstms[0].cell_clip, lstms[0].projection_clip)
        ]
        self._residual = residual

    def __call__(
        self, x: Float[Tensor, "T 2 B D"], continues: Bool[Tensor, "T 2 B"]
    ) -> list[Float[Tensor, "T 2 B D"]]:
        """Return the output of each layer, from states of zero."""
        T, _, B, D = x.shape
        lanes, H = len(self._w), self._w.shape[1] // 4
        L, S = lanes // 2, len(self._p_parts) // lanes
        waves = T + L - 1
        make = partial(torch.empty, dtype=x.dtype, device=x.device)
        keep = torch.zeros(waves + 1, lanes, B, device=x.device)
        for j in range(L):
            keep[j : j + T, 2 * j : 2 * j + 2] = continues
        # Before its first token a lane reads zeros, and whatever it makes of them is not kept.
        xh = torch.zeros(2, lanes, B, 2 * D, dtype=x.dtype, device=x.device)
        xh[0, :2, :, :D] = x[0]
        cell = torch.zeros(lanes, B, H, device=x.device)
        pre, m = make(lanes, B, 4 * H), make(lanes * S, B, H // S)
        h_parts = make(lanes * S, B, D, dtype=torch.float32)
        out = make(waves, lanes, B, D)
        cell_clip, projection_clip = self._clips
        residual = 2 if self._residual else lanes  # the first lane that adds its input
        tiles = (triton.cdiv(B, TILE_ROWS), triton.cdiv(H, TILE_COLUMNS), lanes)
        small_tiles = (triton.cdiv(B, TILE_ROWS), triton.cdiv(D, TILE_COLUMNS), lanes)
        for wave in range(waves):
            here, there = xh[wave % 2], xh[1 - wave % 2]
            multiply(here, self._w.mT, pre)
            _gates[tiles](
                pre, self._bias, cell, keep[wave], m, cell_clip, B, H, S, TILE_ROWS, TILE_COLUMNS
            )
            multiply(m, self._p_parts, h_parts)
            _pass_on[small_tiles](
                h_parts, here, there, x[min(wave + 1, T - 1)], keep[wave + 1], out[wave],
                projection_clip, B, D, S, lanes, residual, TILE_ROWS, TILE_COLUMNS,
            )  # fmt: skip
        return [out[j : j + T, 2 * j : 2 * j + 2] for j in range(L)]


# The number of streams is no constant of the compiled kernels: it changes from call to call.


@triton.jit(do_not_specialize=["B"])
def _gates(
    pre, bias, cell, keep, m, clip, B, H: tl.constexpr, S: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The new cell clip(f c + i g), in its place, and what is projected, o tanh(c)."""
    lane = tl.program_id(2).to(tl.int64)
    row, column, mask = own_tile(B, H, ROWS, COLUMNS)
    i, f, g, o = read_gates(pre + lane * B * 4 * H, bias + lane * 4 * H, row, column, mask, H)
    here = cell + (lane * B + row) * H + column
    kept = tl.load(keep + lane * B + row, row < B, 0)
    c = f * kept * tl.load(here, mask, 0) + i * g
    c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(here, c, mask)
    part: tl.constexpr = H // S
    s = tl.program_id(1) * COLUMNS // part
    at = ((lane * S + s) * B + row) * part + column - s * part
    tl.store(m + at, (o * tanh(c)).to(m.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["B"])
def _pass_on(
    parts, here, there, x, keep, out, clip, B, D: tl.constexpr, S: tl.constexpr,
    LANES: tl.constexpr, RESIDUAL: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Output clip(sum of the parts), put where the next wave reads it.

    `here` and `there` are [x; h] of all lanes in this wave and in the next. Lanes from RESIDUAL
    on add their input.
    """
    lane = tl.program_id(2).to(tl.int64)
    row, column, mask = own_tile(B, D, ROWS, COLUMNS)
    h = tl.zeros((ROWS, COLUMNS), tl.float32)
    for s in tl.static_range(S):
        h += tl.load(parts + ((lane * S + s) * B + row) * D + column, mask, 0)
    h = tl.minimum(tl.maximum(h, -clip), clip)
    kept = tl.load(keep + lane * B + row, row < B, 0)
    own = (lane * B + row) * 2 * D + column
    tl.store(there + own + D, (h * kept).to(there.dtype.element_ty), mask)
    if lane >= RESIDUAL:
        h += tl.load(here + own, mask, 0).to(tl.float32)
    h = h.to(out.dtype.element_ty)
    tl.store(out + (lane * B + row) * D + column, h, mask)
    if lane < LANES - 2:
        tl.store(there + own + 4 * B * D, h, mask)
    if lane < 2:  # the lowest layer reads the text
        tl.store(there + own, tl.load(x + (lane * B + row) * D + column, mask, 0), mask)
