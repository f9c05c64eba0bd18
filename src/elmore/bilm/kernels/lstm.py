"""One LSTM layer of both directions, for training.

The two directions are independent, so each step is a batch of two. At each position:

    h, c = 0                where a sentence starts
    pre = [x; h] W          one batched product: input and recurrent weights form one matrix
    c, m = gates(pre, c)    one kernel: bias, gates, clipped cell state
    h = clip(m P)           one batched product and one kernel

The backward pass recomputes the gates from `pre`, so they are not stored. The gradient of the
weights is one product over all tokens, after the loop. Cell states and their gradients are
float32. Matrix products use `compute_dtype`.

m P and the gradient of [x; h] have few rows and long sums, so they use split-K (see
`gates.num_parts`).

A variable d_x is the gradient of x.

2 directions, T tokens, B rows of the batch, D dim, H cell dim, S parts of a sum.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from elmore.bilm.kernels import compute_dtype, multiply
from elmore.bilm.kernels.gates import (
    TILE_COLUMNS,
    TILE_ROWS,
    gates,
    num_parts,
    read_gates,
    tanh,
    tile_indices,
)
from elmore.bilm.lstm import LSTMState, ProjectedLSTM

_BACK_ROWS, _BACK_COLUMNS = 8, 64  # smaller tiles: the gradient needs more registers per value


def run_layer(
    x: Float[Tensor, "2 T B D"],
    lstms: tuple[ProjectedLSTM, ProjectedLSTM],
    state: tuple[LSTMState, LSTMState] | None,
    keep_state: Bool[Tensor, "2 T B"],
) -> tuple[Float[Tensor, "2 T B D"], list[LSTMState]]:
    """Return the outputs of one layer of both directions, and their states after the last token.

    The arguments are those of `ProjectedLSTM`, for each direction.
    """
    B, lstm = x.shape[2], lstms[0]
    if state is None:
        h = x.new_zeros(2, B, lstm.dim)
        c = x.new_zeros(2, B, lstm.cell_dim, dtype=torch.float32)
    else:
        h, c = (torch.stack(tensors) for tensors in zip(*state, strict=True))
    weights = [
        weight
        for lstm in lstms
        for weight in (
            lstm.input.weight, lstm.recurrent.weight, lstm.input.bias, lstm.project.weight,
        )
    ]  # fmt: skip
    clips = [b if b is not None else float("inf") for b in (lstm.cell_clip, lstm.projection_clip)]
    # One position more than tokens: `_project` at position t also writes to position t + 1.
    keep = functional.pad(keep_state.float(), (0, 0, 0, 1), value=1.0)  # (2, T + 1, B)
    out, cell = _Layer.apply(x, h, c, keep, *clips, compute_dtype(lstm.input.weight), *weights)
    after = zip(out[:, -1].float().detach(), cell, strict=True)
    return out, [LSTMState(h, c) for h, c in after]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        keep: Tensor,
        cell_clip: float,
        projection_clip: float,
        dtype: torch.dtype,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        _, T, B, D = x.shape
        H = c.shape[-1]
        S = num_parts(H)
        make = partial(torch.empty, device=x.device)
        w = make(2, 4 * H, 2 * D, dtype=dtype)
        p = make(2, D, H, dtype=dtype)
        bias = make(2, 4 * H, dtype=torch.float32)
        for d in range(2):
            w_x, w_h, bias_d, p_d = weights[4 * d : 4 * d + 4]
            w[d, :, :D], w[d, :, D:], bias[d], p[d] = w_x, w_h, bias_d, p_d
        p_parts = p.mT.reshape(2 * S, H // S, D).contiguous()

        xh = make(2, T + 1, B, 2 * D, dtype=dtype)  # [x of this token; h of the previous token]
        xh[:, :T, :, :D], xh[:, 0, :, D:] = x, h * keep[:, 0, :, None]
        out = make(2, T, B, D, dtype=dtype)
        pre = make(2, T, B, 4 * H, dtype=dtype)
        cell = make(2, T + 1, B, H, dtype=torch.float32)
        cell[:, 0] = c
        m = make(2 * S, T, B, H // S, dtype=dtype)
        h_parts = make(2 * S, B, D, dtype=torch.float32)
        # The cell state at the start of a sentence.
        zero = torch.zeros(H, device=x.device).expand(2, B, H)
        project_grid = (triton.cdiv(B, TILE_ROWS), triton.cdiv(D, TILE_COLUMNS), 2)
        for t in range(T):
            multiply(xh[:, t], w.mT, pre[:, t])
            gates(pre[:, t], bias, cell[:, t], cell[:, t + 1], keep[:, t], zero, m[:, t], cell_clip)
            multiply(m[:, t], p_parts, h_parts)
            _project[project_grid](
                h_parts, out[:, t], xh[:, t + 1], keep[:, t + 1], projection_clip,
                B, D, T, S, TILE_ROWS, TILE_COLUMNS,
            )  # fmt: skip
        ctx.save_for_backward(xh, out, pre, cell, keep, m, w, p, bias)
        ctx.clips = cell_clip, projection_clip
        ctx.mark_non_differentiable(last := cell[:, T].clone())
        return out, last

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        xh, out, pre, cell, keep, m, w, p, bias = ctx.saved_tensors
        cell_clip, projection_clip = ctx.clips
        T, B, H, D = pre.shape[1], pre.shape[2], cell.shape[-1], p.shape[1]
        S = len(m) // 2
        make = partial(torch.empty, device=xh.device)
        d_pre = make(8, T, B, H, dtype=pre.dtype)  # 2 directions * 4 gates; split-K over the gates
        d_h = make(2, T, B, D, dtype=pre.dtype)
        d_m = make(2, B, H, dtype=pre.dtype)
        d_x = make(2, T, B, D, dtype=d_out.dtype)
        d_cell = torch.zeros(2, B, H, device=xh.device)
        d_xh_parts = torch.zeros(8, B, 2 * D, device=xh.device)
        tiles_per_block = max(1, min(8, B * H // 2**17))  # measured on an H200
        row_tiles = triton.cdiv(B, _BACK_ROWS * tiles_per_block)
        gates_grid = (row_tiles, triton.cdiv(H, _BACK_COLUMNS), 2)
        project_grid = (triton.cdiv(B, TILE_ROWS), triton.cdiv(2 * D, TILE_COLUMNS), 2)
        d_bias = torch.zeros(row_tiles, 2, 4 * H, device=xh.device)
        w_gates = w.view(8, H, 2 * D)
        d_out = d_out.contiguous()
        for t in reversed(range(-1, T)):
            # `d_xh_parts` holds the gradient of [x of token t + 1; h of token t].
            _project_backward[project_grid](
                d_xh_parts, d_out, out, keep, d_x, d_h, t, projection_clip,
                B, D, T, TILE_ROWS, TILE_COLUMNS,
            )  # fmt: skip
            if t < 0:
                break
            multiply(d_h[:, t], p, d_m)
            _gates_backward[gates_grid](
                pre[:, t], bias, cell[:, t], keep[:, t], d_m, d_cell, d_pre[:, t], d_bias,
                cell_clip, B, H, T, _BACK_ROWS, _BACK_COLUMNS, tiles_per_block,
            )  # fmt: skip
            multiply(d_pre[:, t], w_gates, d_xh_parts)

        grads: list[Tensor] = []
        per_gate, per_part = d_pre.view(2, 4, T * B, H), m.view(2, S, T * B, H // S)
        for d in range(2):
            d_w = make(4, H, 2 * D, dtype=torch.float32)
            d_p = make(S, H // S, D, dtype=torch.float32)
            multiply(per_gate[d].mT, xh[d, :T].view(1, T * B, 2 * D).expand(4, -1, -1), d_w)
            multiply(per_part[d].mT, d_h[d].view(1, T * B, D).expand(S, -1, -1), d_p)
            d_w = d_w.view(4 * H, 2 * D)
            grads += [d_w[:, :D], d_w[:, D:], d_bias[:, d].sum(0), d_p.view(H, D).T]
        # No gradient for the initial state: truncated back-propagation stops there.
        return d_x, None, None, None, None, None, None, *grads


# Sizes are compile-time constants, because they do not change during training.


@triton.jit
def _project(
    parts, out, xh, keep, clip,
    B: tl.constexpr, D: tl.constexpr, T: tl.constexpr, S: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute h = clip(sum of the parts), and store it also beside the x of the next token."""
    d = tl.program_id(2).to(tl.int64)
    row, column, mask = tile_indices(B, D, ROWS, COLUMNS)
    h = tl.zeros((ROWS, COLUMNS), tl.float32)
    for s in tl.static_range(S):
        h += tl.load(parts + ((d * S + s) * B + row) * D + column, mask, 0)
    h = tl.minimum(tl.maximum(h, -clip), clip)
    tl.store(out + d * T * B * D + row * D + column, h.to(out.dtype.element_ty), mask)
    kept = tl.load(keep + d * (T + 1) * B + row, row < B, 0)
    at = xh + d * (T + 1) * B * 2 * D + row * 2 * D + D + column
    tl.store(at, (h * kept).to(xh.dtype.element_ty), mask)


@triton.jit
def _gates_backward(
    pre, bias, cell, keep, d_m, d_cell, d_pre, d_bias, clip,
    B: tl.constexpr, H: tl.constexpr, T: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of `gates`, TILES tiles of rows per thread block.

    The gradient of the bias is a sum over rows and tokens. Each thread block adds up its own tiles
    in registers, and its tokens in its own memory. So there are no atomic additions, and sums have
    a fixed order.
    """
    d = tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    pre += d * T * B * 4 * H
    bias += d * 4 * H
    cell += d * (T + 1) * B * H
    keep += d * (T + 1) * B
    d_pre += d * 4 * T * B * H
    sum_i = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_f = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_g = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_o = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile in range(TILES):
        row = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)
        mask = (row < B) & (column < H)
        i, f, g, o = read_gates(pre, bias, row, column, mask, H)
        kept = tl.load(keep + row, row < B, 0)
        before = kept * tl.load(cell + row * H + column, mask, 0)
        at = (d * B + row) * H + column
        # Masked values have a zero gradient, so they add nothing to the sums.
        dm = tl.load(d_m + at, mask, 0).to(tl.float32)
        dc = tl.load(d_cell + at, mask, 0)
        c = f * before + i * g
        tanh_c = tanh(tl.minimum(tl.maximum(c, -clip), clip))
        dc += dm * o * (1 - tanh_c * tanh_c)
        dc = tl.where((c >= -clip) & (c <= clip), dc, 0)
        tl.store(d_cell + at, dc * f * kept, mask)
        d_i = dc * g * i * (1 - i)
        d_f = dc * before * f * (1 - f)
        d_g = dc * i * (1 - g * g)
        d_o = dm * tanh_c * o * (1 - o)
        out = d_pre + row * H + column
        tl.store(out, d_i.to(d_pre.dtype.element_ty), mask)
        tl.store(out + T * B * H, d_f.to(d_pre.dtype.element_ty), mask)
        tl.store(out + 2 * T * B * H, d_g.to(d_pre.dtype.element_ty), mask)
        tl.store(out + 3 * T * B * H, d_o.to(d_pre.dtype.element_ty), mask)
        sum_i += d_i
        sum_f += d_f
        sum_g += d_g
        sum_o += d_o
    k = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    d_bias += (tl.program_id(0) * 2 + d) * 4 * H + k
    _add(d_bias, tl.sum(sum_i, 0), k < H)
    _add(d_bias + H, tl.sum(sum_f, 0), k < H)
    _add(d_bias + 2 * H, tl.sum(sum_g, 0), k < H)
    _add(d_bias + 3 * H, tl.sum(sum_o, 0), k < H)


@triton.jit
def _add(to, values, mask):
    tl.store(to, tl.load(to, mask, 0) + values, mask)


@triton.jit(do_not_specialize=["t"])
def _project_backward(
    parts, d_out, out, keep, d_x, d_h, t, clip,
    B: tl.constexpr, D: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of h of token t before clipping, and of x of token t + 1."""
    d = tl.program_id(2).to(tl.int64)
    row, column, mask = tile_indices(B, 2 * D, ROWS, COLUMNS)
    grad = tl.zeros((ROWS, COLUMNS), tl.float32)
    for s in tl.static_range(4):
        grad += tl.load(parts + ((d * 4 + s) * B + row) * 2 * D + column, mask, 0)
    if t + 1 < T:
        at = ((d * T + t + 1) * B + row) * D + column
        tl.store(d_x + at, grad.to(d_x.dtype.element_ty), mask & (column < D))
    if t >= 0:
        mask = mask & (column >= D)
        at = ((d * T + t) * B + row) * D + column - D
        kept = tl.load(keep + (d * (T + 1) + t + 1) * B + row, row < B, 0)
        grad = grad * kept + tl.load(d_out + at, mask, 0).to(tl.float32)
        h = tl.load(out + at, mask, 0)
        # Clipped values equal the bound, and get no gradient.
        inside = (h > -clip) & (h < clip)
        tl.store(d_h + at, tl.where(inside, grad, 0).to(d_h.dtype.element_ty), mask)
