"""The gates of an LSTM step, shared by the training and the inference kernels.

Several LSTMs run in parallel: the two directions of a layer in training, all layers of both
directions in inference.

B rows of the batch, H cell dim, S parts of the sum over H in a projection.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl
from torch import Tensor

TILE_ROWS, TILE_COLUMNS = 32, 64  # the tile of a matrix that one thread block computes


def num_parts(cell_dim: int) -> int:
    """Return S, the number of parts into which a projection splits its sum over H (split-K).

    A matrix product with few rows and a long sum leaves most of the device idle. The parts of the
    sum are therefore separate products of a batch, and the next kernel adds them up in float32.
    """
    # A tile must not span two parts.
    return 4 if cell_dim % (4 * TILE_COLUMNS) == 0 else 1


def gates(
    pre: Tensor,
    bias: Tensor,
    cell: Tensor,
    new_cell: Tensor,
    keep: Tensor,
    start: Tensor,
    m: Tensor,
    clip: float,
) -> None:
    """Compute the new cell state c = clip(f c + i g), and m = o tanh(c), which is projected next.

    Args:
        pre: (num_lstms, B, 4H), the gates before bias and activation.
        bias: (num_lstms, 4H).
        cell: (num_lstms, B, H), the cell state, in float32.
        new_cell: Receives the new cell state; may be `cell` itself.
        keep: (num_lstms, B), 0 to replace the cell state by `start`, otherwise 1.
        start: (num_lstms, B, H), the cell state at the start of a sentence, in float32.
        m: (num_lstms * S, B, H / S), receives the values to project, in S parts.
        clip: The cell clip; infinity for no clipping.
    """
    num_lstms, B, H = cell.shape
    grid = (triton.cdiv(B, TILE_ROWS), triton.cdiv(H, TILE_COLUMNS), num_lstms)
    _gates[grid](
        pre, bias, cell, new_cell, keep, start, m, clip, B,
        pre.stride(0), cell.stride(0), new_cell.stride(0), keep.stride(0), start.stride(0),
        start.stride(1), m.stride(0), H, len(m) // num_lstms, TILE_ROWS, TILE_COLUMNS,
    )  # fmt: skip


@triton.jit
def tanh(x):
    """Compute tanh from the sigmoid, which is faster."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def tile_indices(B, H, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return rows, columns and mask of this thread block's tile of a (B, H) matrix."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return row.to(tl.int64), column, (row < B) & (column < H)


@triton.jit
def read_gates(pre, bias, row, column, mask, H: tl.constexpr):
    """Return the gates i, f, g, o of a tile."""
    at = row * 4 * H + column
    inside = column < H
    i = tl.load(pre + at, mask, 0).to(tl.float32) + tl.load(bias + column, inside, 0)
    f = tl.load(pre + at + H, mask, 0).to(tl.float32) + tl.load(bias + H + column, inside, 0)
    g = tl.load(pre + at + 2 * H, mask, 0).to(tl.float32)
    g += tl.load(bias + 2 * H + column, inside, 0)
    o = tl.load(pre + at + 3 * H, mask, 0).to(tl.float32)
    o += tl.load(bias + 3 * H + column, inside, 0)
    return tl.sigmoid(i), tl.sigmoid(f), tanh(g), tl.sigmoid(o)


@triton.jit(do_not_specialize=["B"])
def _gates(
    pre, bias, cell, new_cell, keep, start, m, clip, B,
    pre_lstm, cell_lstm, new_cell_lstm, keep_lstm, start_lstm, start_row, m_part,
    H: tl.constexpr, S: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    lstm = tl.program_id(2).to(tl.int64)
    row, column, mask = tile_indices(B, H, ROWS, COLUMNS)
    i, f, g, o = read_gates(pre + lstm * pre_lstm, bias + lstm * 4 * H, row, column, mask, H)
    kept = tl.load(keep + lstm * keep_lstm + row, row < B, 1) != 0
    before = tl.load(cell + lstm * cell_lstm + row * H + column, mask & kept, 0)
    before += tl.load(start + lstm * start_lstm + row * start_row + column, mask & (kept == 0), 0)
    c = f * before + i * g
    c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(new_cell + lstm * new_cell_lstm + row * H + column, c, mask)
    part: tl.constexpr = H // S
    s = tl.program_id(1) * COLUMNS // part
    at = (lstm * S + s) * m_part + row * part + column - s * part
    tl.store(m + at, (o * tanh(c)).to(m.dtype.element_ty), mask)
