"""A recurrent layer over whole sentences in one kernel, for GPUs.

RNNs of the usual size are limited by kernel launches: cuDNN launches two small kernels per word and
direction, and a launch takes longer than the kernel. Here, one program runs a few sentences in one
direction from the first word to the last, forward and backward pass alike. Sentences may have
different lengths, and need neither packing nor reversing.

    lstm      i, f, g, o     c = f c' + i g    h = o tanh(c)
    gru       r, z, n        n = tanh(x_n + r (W_n h' + b))    h = (1 - z) n + z h'
    highway   g, i, f, o, r  c = f c' + i g    h = keep (r o tanh(c) + (1 - r) carry)

Each gate is a function of x + W h', where h' and c' are the state after the previous word. Products
are in TF32, as in PyTorch's own RNNs on a GPU, and accumulated in float32.

B sentences, T words, D directions, G gates, H width, S values that a cell saves for its gradient.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any, Literal

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmore.bilm.kernels.gates import tanh

Cell = Literal["lstm", "gru", "highway"]

_GATES = {"lstm": 4, "gru": 3, "highway": 5}
_SAVED = {"lstm": 4, "gru": 4, "highway": 5}  # a GRU also saves W_n h' + b, and its gradient
_OPTIONS = {"ROWS": 16, "COLUMNS": 128, "INNER": 32, "num_warps": 8, "num_stages": 3}


def fused_rnn(
    cell: Cell,
    x: Float[Tensor, "B T D G*H"],
    weight: Float[Tensor, "D G*H H"],
    lengths: Int[Tensor, " B"],
    *,
    bias: Float[Tensor, "D H"] | None = None,
    carry: Float[Tensor, "B T D H"] | None = None,
    keep: Float[Tensor, "B H"] | None = None,
    reverse: bool = False,
) -> Float[Tensor, "B T D H"]:
    """Return h of every word, and zeros for padding.

    Args:
        cell: The equations of each cell are at the top of this file.
        x: Products of the input and the input weights, plus all biases except `bias`.
        weight: The recurrent weights W.
        lengths: Number of words of each sentence, on the same device.
        bias: The bias b of a GRU.
        carry: The skip connection of a highway cell.
        keep: The dropout mask of a highway cell's output, the same for every word.
        reverse: Read from the last word to the first. A second direction reads the other way.
    """
    return _FusedRNN.apply(x, weight, bias, carry, keep, lengths, cell, reverse)


class _FusedRNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        carry: Tensor | None,
        keep: Tensor | None,
        lengths: Tensor,
        cell: Cell,
        reverse: bool,
    ) -> Tensor:
        B, T, D, _ = x.shape
        H = weight.shape[-1]
        x, weight = x.contiguous(), weight.contiguous()
        bias, carry = (y if y is None else y.contiguous() for y in (bias, carry))
        h = x.new_zeros(B, T, D, H)
        c = torch.empty_like(h) if cell != "gru" else h
        saved = x.new_empty(B, T, D, _SAVED[cell] * H)
        _forward[(triton.cdiv(B, _OPTIONS["ROWS"]), D)](
            x, weight, bias, carry, keep, lengths, h, c, saved, B, T, int(reverse), H=H, D=D,
            CELL=cell, G=_GATES[cell], S=_SAVED[cell], **_OPTIONS,
        )  # fmt: skip
        ctx.save_for_backward(weight, carry, keep, lengths, h, c, saved)
        ctx.cell, ctx.reverse = cell, reverse
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, carry, keep, lengths, h, c, saved = ctx.saved_tensors
        cell, reverse = ctx.cell, ctx.reverse
        B, T, D, H = h.shape
        d_saved = torch.zeros_like(saved)
        d_carry = torch.zeros_like(h) if cell == "highway" else None
        d_h, d_c = grad.new_zeros(2, B, D, H)  # scratch: gradients of the state, word by word
        _backward[(triton.cdiv(B, _OPTIONS["ROWS"]), D)](
            grad.contiguous(), weight, carry, keep, lengths, h, c, saved, d_saved, d_carry,
            d_h, d_c, B, T, int(reverse), H=H, D=D,
            CELL=cell, G=_GATES[cell], S=_SAVED[cell], **_OPTIONS,
        )  # fmt: skip
        d_x = d_products = d_saved
        d_bias = None
        if cell == "gru":
            d_products = d_saved[..., : 3 * H]
            d_x = torch.cat([d_saved[..., : 2 * H], d_saved[..., 3 * H :]], dim=-1)
            d_bias = d_products[..., 2 * H :].sum(dim=(0, 1))
        d_weight = torch.stack(
            [
                d_products[:, :, d].flatten(0, 1).T @ _previous(h[:, :, d], bool(d) != reverse)
                for d in range(D)
            ]
        )
        return d_x, d_weight, d_bias, d_carry, None, None, None, None


def _previous(h: Float[Tensor, "B T H"], reverse: bool) -> Float[Tensor, "B*T H"]:
    """Return h' of each word: [a b c] -> [0 a b], or [b c 0] in reverse."""
    previous = torch.zeros_like(h)
    if reverse:
        previous[:, :-1] = h[:, 1:]
    else:
        previous[:, 1:] = h[:, :-1]
    return previous.flatten(0, 1)


@triton.jit
def _transposed(w, inner, columns, H: tl.constexpr):
    """Load a tile of a gate's matrix W, transposed, so that h' W^T has these columns."""
    ok = (inner[:, None] < H) & (columns[None, :] < H)
    return tl.load(w + columns[None, :] * H + inner[:, None], ok, 0)


@triton.jit
def _locate(t, rows, length, reverse, T, d, D: tl.constexpr, ROWS: tl.constexpr):
    """Return where in (B, T, D) each sentence's word of step t and the word before it are.

    Both come with a mask: whether the sentence has such a word.
    """
    step = tl.zeros((ROWS,), dtype=tl.int64) + t
    active = step < length
    position = tl.where(reverse, length - 1 - step, step)
    now = (rows * T + position) * D + d
    before = tl.where(reverse, now + D, now - D)
    return active, active & (step > 0), now, before


@triton.jit(do_not_specialize=["B", "T", "reverse_first"])
def _forward(
    x, weight, bias, carry, keep, lengths, h, c, saved, B, T, reverse_first,
    H: tl.constexpr, D: tl.constexpr, CELL: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.program_id(1)
    reverse = (d + reverse_first) % 2 == 1
    length = tl.load(lengths + rows, mask=rows < B, other=0)
    w = weight + d * G * H * H
    # Offsets of i, f, g or r, z, n, in PyTorch's order; a highway starts with g, i, f.
    FIRST: tl.constexpr = H if CELL == "highway" else 0
    SECOND: tl.constexpr = FIRST + H
    THIRD: tl.constexpr = 0 if CELL == "highway" else 2 * H
    for t in range(tl.max(length)):
        active, has_previous, now, previous = _locate(t, rows, length, reverse, T, d, D, ROWS)
        for j in range(0, H, COLUMNS):
            columns = j + tl.arange(0, COLUMNS)
            ok = active[:, None] & (columns[None, :] < H)
            ok_before = has_previous[:, None] & (columns[None, :] < H)
            from_x = x + now[:, None] * (G * H) + columns[None, :]
            to = saved + now[:, None] * (S * H) + columns[None, :]
            at_now = now[:, None] * H + columns[None, :]
            at_before = previous[:, None] * H + columns[None, :]
            a0 = tl.load(from_x + FIRST, ok, 0)
            a1 = tl.load(from_x + SECOND, ok, 0)
            a2 = tl.load(from_x + THIRD, ok, 0)
            a4 = a2  # replaced below in a highway, and unused elsewhere
            if CELL == "gru":
                a3 = a2  # x_n, which the reset gate does not scale
                b = tl.load(bias + d * H + columns, columns < H, 0)
                a2 = tl.zeros((ROWS, COLUMNS), dtype=tl.float32) + b[None, :]
            else:
                a3 = tl.load(from_x + 3 * H, ok, 0)
            if CELL == "highway":
                a4 = tl.load(from_x + 4 * H, ok, 0)
            for k in range(0, H, INNER):
                inner = k + tl.arange(0, INNER)
                h_prev = tl.load(
                    h + previous[:, None] * H + inner[None, :],
                    mask=has_previous[:, None] & (inner[None, :] < H),
                    other=0.0,
                )
                a0 = tl.dot(h_prev, _transposed(w + FIRST * H, inner, columns, H), a0)
                a1 = tl.dot(h_prev, _transposed(w + SECOND * H, inner, columns, H), a1)
                a2 = tl.dot(h_prev, _transposed(w + THIRD * H, inner, columns, H), a2)
                if CELL != "gru":
                    a3 = tl.dot(h_prev, _transposed(w + 3 * H * H, inner, columns, H), a3)
                if CELL == "highway":
                    a4 = tl.dot(h_prev, _transposed(w + 4 * H * H, inner, columns, H), a4)
            if CELL == "gru":
                r = tl.sigmoid(a0)
                z = tl.sigmoid(a1)
                n = tanh(a3 + r * a2)
                before = tl.load(h + at_before, ok_before, 0)
                tl.store(to, r, ok)
                tl.store(to + H, z, ok)
                tl.store(to + 2 * H, a2, ok)
                tl.store(to + 3 * H, n, ok)
                tl.store(h + at_now, n + z * (before - n), ok)
            else:
                i = tl.sigmoid(a0)
                f = tl.sigmoid(a1)
                g = tanh(a2)
                tl.store(to + FIRST, i, ok)
                tl.store(to + SECOND, f, ok)
                tl.store(to + THIRD, g, ok)
                o = tl.sigmoid(a3)
                tl.store(to + 3 * H, o, ok)
                before = tl.load(c + at_before, ok_before, 0)
                cell = f * before + i * g
                tl.store(c + at_now, cell, ok)
                y = o * tanh(cell)
                if CELL == "highway":
                    r = tl.sigmoid(a4)
                    tl.store(to + 4 * H, r, ok)
                    skip = tl.load(carry + at_now, ok, 0)
                    y = skip + r * (y - skip)
                    y *= tl.load(keep + rows[:, None] * H + columns[None, :], ok, 0)
                tl.store(h + at_now, y, ok)
        tl.debug_barrier()  # the next word reads h and c that other threads have written


@triton.jit(do_not_specialize=["B", "T", "reverse_first"])
def _backward(
    grad, weight, carry, keep, lengths, h, c, saved, d_saved, d_carry, d_h, d_c,
    B, T, reverse_first,
    H: tl.constexpr, D: tl.constexpr, CELL: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.program_id(1)
    reverse = (d + reverse_first) % 2 == 1
    length = tl.load(lengths + rows, mask=rows < B, other=0)
    w = weight + d * G * H * H
    FIRST: tl.constexpr = H if CELL == "highway" else 0
    SECOND: tl.constexpr = FIRST + H
    THIRD: tl.constexpr = 0 if CELL == "highway" else 2 * H
    steps = tl.max(length)
    for s in range(steps):
        t = steps - 1 - s
        active, has_previous, now, previous = _locate(t, rows, length, reverse, T, d, D, ROWS)
        for j in range(0, H, COLUMNS):
            columns = j + tl.arange(0, COLUMNS)
            ok = active[:, None] & (columns[None, :] < H)
            ok_before = has_previous[:, None] & (columns[None, :] < H)
            at_now = now[:, None] * H + columns[None, :]
            at_before = previous[:, None] * H + columns[None, :]
            own = (rows[:, None] * D + d) * H + columns[None, :]
            gates = now[:, None] * (S * H) + columns[None, :]
            dy = tl.load(grad + at_now, ok, 0) + tl.load(d_h + own, ok, 0)
            v0 = tl.load(saved + gates + FIRST, ok, 0)
            v1 = tl.load(saved + gates + SECOND, ok, 0)
            v2 = tl.load(saved + gates + THIRD, ok, 0)
            v3 = tl.load(saved + gates + 3 * H, ok, 0)
            if CELL == "gru":  # r, z, W_n h' + b, n
                before = tl.load(h + at_before, ok_before, 0)
                dn = dy * (1 - v1) * (1 - v3 * v3)
                tl.store(d_saved + gates, dn * v2 * v0 * (1 - v0), ok)
                tl.store(d_saved + gates + H, dy * (before - v3) * v1 * (1 - v1), ok)
                tl.store(d_saved + gates + 2 * H, dn * v0, ok)
                tl.store(d_saved + gates + 3 * H, dn, ok)
                tl.store(d_c + own, dy * v1, ok)  # the gradient of h' in z h'
            else:  # i, f, g, o
                cell = tanh(tl.load(c + at_now, ok, 0))
                before = tl.load(c + at_before, ok_before, 0)
                if CELL == "highway":
                    dy *= tl.load(keep + rows[:, None] * H + columns[None, :], ok, 0)
                    r = tl.load(saved + gates + 4 * H, ok, 0)
                    skip = tl.load(carry + at_now, ok, 0)
                    tl.store(d_saved + gates + 4 * H, dy * (v3 * cell - skip) * r * (1 - r), ok)
                    tl.store(d_carry + at_now, dy * (1 - r), ok)
                    dy *= r
                dc = tl.load(d_c + own, ok, 0) + dy * v3 * (1 - cell * cell)
                tl.store(d_c + own, dc * v1, ok)
                tl.store(d_saved + gates + FIRST, dc * v2 * v0 * (1 - v0), ok)
                tl.store(d_saved + gates + SECOND, dc * before * v1 * (1 - v1), ok)
                tl.store(d_saved + gates + THIRD, dc * v0 * (1 - v2 * v2), ok)
                tl.store(d_saved + gates + 3 * H, dy * cell * v3 * (1 - v3), ok)
        tl.debug_barrier()
        for j in range(0, H, COLUMNS):
            columns = j + tl.arange(0, COLUMNS)
            ok = active[:, None] & (columns[None, :] < H)
            own = (rows[:, None] * D + d) * H + columns[None, :]
            dh = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
            if CELL == "gru":
                dh = tl.load(d_c + own, ok, 0)
            # The rows of all gates in W match the columns of all gates in d_saved.
            for k in range(0, G * H, INNER):
                inner = k + tl.arange(0, INNER)
                inside = inner < G * H
                d_tile = tl.load(
                    d_saved + now[:, None] * (S * H) + inner[None, :],
                    mask=active[:, None] & inside[None, :],
                    other=0.0,
                )
                w_tile = tl.load(
                    w + inner[:, None] * H + columns[None, :],
                    mask=inside[:, None] & (columns[None, :] < H),
                    other=0.0,
                )
                dh = tl.dot(d_tile, w_tile, dh)
            tl.store(d_h + own, dh, ok)
        tl.debug_barrier()
