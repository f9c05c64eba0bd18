"""Whole sentences through a recurrent layer in one kernel, for GPUs.

An RNN of the usual size is a long row of small products: cuDNN starts two kernels a word and
direction, and to start one takes longer than to run it. Here a program takes some sentences in
one direction from their first word to their last, and the gradient goes back in the same way. Each
sentence has its own length, so that nothing is packed or turned round.

    LSTM      i, f, g, o     c = f c' + i g    h = o tanh(c)
    GRU       r, z, n        n = tanh(x_n + r (W_n h' + b))    h = (1 - z) n + z h'
    HIGHWAY   g, i, f, o, r  c = f c' + i g    h = keep (r o tanh(c) + (1 - r) passed)

where a gate is a function of x + W h'. As in PyTorch's own RNNs there, products have ten bits of
mantissa (TF32), and their sums are in float32.

B sentences, T words, D directions, G gates, H width, S numbers that a cell keeps of its gates.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmore.bilm.kernels.gates import tanh

LSTM = tl.constexpr(0)
GRU = tl.constexpr(1)
HIGHWAY = tl.constexpr(2)
GATES = {0: 4, 1: 3, 2: 5}
KEPT = {0: 4, 1: 4, 2: 5}
"""A GRU keeps W_n h' + b, too, and has a gradient of its own for it."""

_ROWS, _COLUMNS, _DEPTH = 16, 128, 32
_RUN = {"num_warps": 8, "num_stages": 3}


class FusedRNN(torch.autograd.Function):
    """What is left of a layer once the input's products are there for all words.

    Args:
        x: The input's products, with all biases but the GRU's `bias`.
        weight: The recurrent weights.
        bias: Of W_n h in a GRU.
        passed: What the highway of a HIGHWAY passes by.
        keep: Dropout of its output, the same at every word.
        lengths: Words of each sentence.
        cell: LSTM, GRU or HIGHWAY.
        back: The first direction reads from the end; a second one is the other.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "B T D G*H"],
        weight: Float[Tensor, "D G*H H"],
        bias: Float[Tensor, "D H"] | None,
        passed: Float[Tensor, "B T D H"] | None,
        keep: Float[Tensor, "B H"] | None,
        lengths: Int[Tensor, " B"],
        cell: int,
        back: bool,
    ) -> Float[Tensor, "B T D H"]:
        """Run over all words."""
        B, T, D, _ = x.shape
        H = weight.shape[-1]
        x, weight = x.contiguous(), weight.contiguous()
        bias, passed = (y if y is None else y.contiguous() for y in (bias, passed))
        h = x.new_zeros(B, T, D, H)  # padding stays zero
        c = torch.empty_like(h) if cell != GRU.value else h
        gates = x.new_empty(B, T, D, KEPT[cell] * H)
        _forward[(triton.cdiv(B, _ROWS), D)](
            x, weight, bias, passed, keep, lengths, h, c, gates,
            B, T, H, int(back), D=D, CELL=cell, G=GATES[cell], S=KEPT[cell],
            ROWS=_ROWS, COLUMNS=_COLUMNS, DEPTH=_DEPTH, KEEP=keep is not None, **_RUN,
        )  # fmt: skip
        ctx.save_for_backward(weight, passed, keep, lengths, h, c, gates)
        ctx.cell, ctx.back = cell, back
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Float[Tensor, "B T D H"]) -> tuple[Tensor | None, ...]:
        """Return the gradients, from the last word to the first."""
        weight, passed, keep, lengths, h, c, gates = ctx.saved_tensors
        cell, back = ctx.cell, ctx.back
        B, T, D, H = h.shape
        G, S = GATES[cell], KEPT[cell]
        d_gates = torch.zeros_like(gates)
        d_passed = torch.zeros_like(h) if cell == HIGHWAY.value else None
        states = grad.new_zeros(2, B, D, H)  # gradients of h and c, as the next word has left them
        _backward[(triton.cdiv(B, _ROWS), D)](
            grad.contiguous(), weight, passed, keep, lengths, h, c, gates, d_gates, d_passed,
            states[0], states[1], B, T, H, int(back), D=D, CELL=cell, G=G, S=S,
            ROWS=_ROWS, COLUMNS=_COLUMNS, DEPTH=_DEPTH, KEEP=keep is not None, **_RUN,
        )  # fmt: skip
        d_x = d_products = d_gates
        d_bias = None
        if cell == GRU.value:
            d_products = d_gates[..., : 3 * H]
            d_x = torch.cat([d_gates[..., : 2 * H], d_gates[..., 3 * H :]], dim=-1)
            d_bias = d_products[..., 2 * H :].sum(dim=(0, 1))
        d_weight = torch.stack(
            [
                d_products[:, :, d].flatten(0, 1).T @ _before(h[:, :, d], bool(d) != back)
                for d in range(D)
            ]
        )
        return d_x, d_weight, d_bias, d_passed, None, None, None, None


def _before(h: Float[Tensor, "B T H"], back: bool) -> Float[Tensor, "B*T H"]:
    """Return what each word was told by the one before it, in the order of reading."""
    told = torch.zeros_like(h)
    if back:
        told[:, :-1] = h[:, 1:]
    else:
        told[:, 1:] = h[:, :-1]
    return told.flatten(0, 1)


@triton.jit
def _part(w, depth, of, H: tl.constexpr):
    """Read a tile of a gate's matrix, transposed: columns `depth`, rows `of`."""
    ok = (depth[:, None] < H) & (of[None, :] < H)
    return tl.load(w + of[None, :] * H + depth[:, None], mask=ok, other=0.0)


@triton.jit
def _places(t, rows, length, from_end, T, d, D: tl.constexpr, ROWS: tl.constexpr):
    """Tell which sentences have a word at step t, and one before it, and where the two are."""
    step = tl.zeros((ROWS,), dtype=tl.int64) + t
    going = step < length
    now = tl.where(from_end, length - 1 - step, step)
    here = (rows * T + now) * D + d
    there = tl.where(from_end, here + D, here - D)
    return going, going & (step > 0), here, there


@triton.jit(do_not_specialize=["B", "T", "back"])
def _forward(
    x, weight, bias, passed, keep, lengths, h, c, gates,
    B, T, H: tl.constexpr, back, D: tl.constexpr, CELL: tl.constexpr, G: tl.constexpr,
    S: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.program_id(1)
    from_end = (d + back) % 2 == 1
    length = tl.load(lengths + rows, mask=rows < B, other=0)
    w = weight + d * G * H * H
    # Where the gates are: in PyTorch's order i, f, g or r, z, n, and g, i, f with a highway.
    FIRST: tl.constexpr = H if CELL == HIGHWAY else 0
    SECOND: tl.constexpr = FIRST + H
    THIRD: tl.constexpr = 0 if CELL == HIGHWAY else 2 * H
    for t in range(tl.max(length)):
        going, known, here, there = _places(t, rows, length, from_end, T, d, D, ROWS)
        for j in range(0, H, COLUMNS):
            of = j + tl.arange(0, COLUMNS)
            ok = going[:, None] & (of[None, :] < H)
            ok_before = known[:, None] & (of[None, :] < H)
            from_x = x + here[:, None] * (G * H) + of[None, :]
            to = gates + here[:, None] * (S * H) + of[None, :]
            spot = here[:, None] * H + of[None, :]
            spot_before = there[:, None] * H + of[None, :]
            a0 = tl.load(from_x + FIRST, mask=ok, other=0.0)
            a1 = tl.load(from_x + SECOND, mask=ok, other=0.0)
            a2 = tl.load(from_x + THIRD, mask=ok, other=0.0)
            a4 = a2  # of a highway alone, as a3 is of all but the GRU
            if CELL == GRU:
                a3 = a2  # the input's share, which the gate does not reset
                start = tl.load(bias + d * H + of, mask=of < H, other=0.0)
                a2 = tl.zeros((ROWS, COLUMNS), dtype=tl.float32) + start[None, :]
            else:
                a3 = tl.load(from_x + 3 * H, mask=ok, other=0.0)
            if CELL == HIGHWAY:
                a4 = tl.load(from_x + 4 * H, mask=ok, other=0.0)
            for k in range(0, H, DEPTH):
                depth = k + tl.arange(0, DEPTH)
                told = tl.load(
                    h + there[:, None] * H + depth[None, :],
                    mask=known[:, None] & (depth[None, :] < H),
                    other=0.0,
                )
                a0 = tl.dot(told, _part(w + FIRST * H, depth, of, H), a0)
                a1 = tl.dot(told, _part(w + SECOND * H, depth, of, H), a1)
                a2 = tl.dot(told, _part(w + THIRD * H, depth, of, H), a2)
                if CELL != GRU:
                    a3 = tl.dot(told, _part(w + 3 * H * H, depth, of, H), a3)
                if CELL == HIGHWAY:
                    a4 = tl.dot(told, _part(w + 4 * H * H, depth, of, H), a4)
            if CELL == GRU:
                r = tl.sigmoid(a0)
                z = tl.sigmoid(a1)
                n = tanh(a3 + r * a2)
                before = tl.load(h + spot_before, mask=ok_before, other=0.0)
                tl.store(to, r, mask=ok)
                tl.store(to + H, z, mask=ok)
                tl.store(to + 2 * H, a2, mask=ok)
                tl.store(to + 3 * H, n, mask=ok)
                tl.store(h + spot, n + z * (before - n), mask=ok)
            else:
                i = tl.sigmoid(a0)
                f = tl.sigmoid(a1)
                g = tanh(a2)
                tl.store(to + FIRST, i, mask=ok)
                tl.store(to + SECOND, f, mask=ok)
                tl.store(to + THIRD, g, mask=ok)
                o = tl.sigmoid(a3)
                tl.store(to + 3 * H, o, mask=ok)
                before = tl.load(c + spot_before, mask=ok_before, other=0.0)
                cell = f * before + i * g
                tl.store(c + spot, cell, mask=ok)
                y = o * tanh(cell)
                if CELL == HIGHWAY:
                    r = tl.sigmoid(a4)
                    tl.store(to + 4 * H, r, mask=ok)
                    by = tl.load(passed + spot, mask=ok, other=0.0)
                    y = by + r * (y - by)
                    if KEEP:
                        y *= tl.load(keep + rows[:, None] * H + of[None, :], mask=ok, other=0.0)
                tl.store(h + spot, y, mask=ok)
        tl.debug_barrier()  # the next word reads what all threads have written of this one


@triton.jit(do_not_specialize=["B", "T", "back"])
def _backward(
    grad, weight, passed, keep, lengths, h, c, gates, d_gates, d_passed, d_h, d_c,
    B, T, H: tl.constexpr, back, D: tl.constexpr, CELL: tl.constexpr, G: tl.constexpr,
    S: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.program_id(1)
    from_end = (d + back) % 2 == 1
    length = tl.load(lengths + rows, mask=rows < B, other=0)
    w = weight + d * G * H * H
    FIRST: tl.constexpr = H if CELL == HIGHWAY else 0
    SECOND: tl.constexpr = FIRST + H
    THIRD: tl.constexpr = 0 if CELL == HIGHWAY else 2 * H
    steps = tl.max(length)
    for s in range(steps):
        t = steps - 1 - s
        going, known, here, there = _places(t, rows, length, from_end, T, d, D, ROWS)
        for j in range(0, H, COLUMNS):
            of = j + tl.arange(0, COLUMNS)
            ok = going[:, None] & (of[None, :] < H)
            ok_before = known[:, None] & (of[None, :] < H)
            spot = here[:, None] * H + of[None, :]
            spot_before = there[:, None] * H + of[None, :]
            state = (rows[:, None] * D + d) * H + of[None, :]
            at = here[:, None] * (S * H) + of[None, :]
            dy = tl.load(grad + spot, mask=ok, other=0.0) + tl.load(d_h + state, mask=ok, other=0.0)
            v0 = tl.load(gates + at + FIRST, mask=ok, other=0.0)
            v1 = tl.load(gates + at + SECOND, mask=ok, other=0.0)
            v2 = tl.load(gates + at + THIRD, mask=ok, other=0.0)
            v3 = tl.load(gates + at + 3 * H, mask=ok, other=0.0)
            if CELL == GRU:  # r, z, W_n h' + b, n
                before = tl.load(h + spot_before, mask=ok_before, other=0.0)
                dn = dy * (1 - v1) * (1 - v3 * v3)
                tl.store(d_gates + at, dn * v2 * v0 * (1 - v0), mask=ok)
                tl.store(d_gates + at + H, dy * (before - v3) * v1 * (1 - v1), mask=ok)
                tl.store(d_gates + at + 2 * H, dn * v0, mask=ok)
                tl.store(d_gates + at + 3 * H, dn, mask=ok)
                tl.store(d_c + state, dy * v1, mask=ok)  # what goes to h' past all gates
            else:  # i, f, g, o
                cell = tanh(tl.load(c + spot, mask=ok, other=0.0))
                before = tl.load(c + spot_before, mask=ok_before, other=0.0)
                if CELL == HIGHWAY:
                    if KEEP:
                        dy *= tl.load(keep + rows[:, None] * H + of[None, :], mask=ok, other=0.0)
                    r = tl.load(gates + at + 4 * H, mask=ok, other=0.0)
                    by = tl.load(passed + spot, mask=ok, other=0.0)
                    tl.store(d_gates + at + 4 * H, dy * (v3 * cell - by) * r * (1 - r), mask=ok)
                    tl.store(d_passed + spot, dy * (1 - r), mask=ok)
                    dy *= r
                dc = tl.load(d_c + state, mask=ok, other=0.0) + dy * v3 * (1 - cell * cell)
                tl.store(d_c + state, dc * v1, mask=ok)
                tl.store(d_gates + at + FIRST, dc * v2 * v0 * (1 - v0), mask=ok)
                tl.store(d_gates + at + SECOND, dc * before * v1 * (1 - v1), mask=ok)
                tl.store(d_gates + at + THIRD, dc * v0 * (1 - v2 * v2), mask=ok)
                tl.store(d_gates + at + 3 * H, dy * cell * v3 * (1 - v3), mask=ok)
        tl.debug_barrier()
        for j in range(0, H, COLUMNS):
            of = j + tl.arange(0, COLUMNS)
            ok = going[:, None] & (of[None, :] < H)
            state = (rows[:, None] * D + d) * H + of[None, :]
            dh = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
            if CELL == GRU:
                dh = tl.load(d_c + state, mask=ok, other=0.0)
            # The gates of W are below each other, and their gradients beside each other.
            for k in range(0, G * H, DEPTH):
                depth = k + tl.arange(0, DEPTH)
                inside = depth < G * H
                told = tl.load(
                    d_gates + here[:, None] * (S * H) + depth[None, :],
                    mask=going[:, None] & inside[None, :],
                    other=0.0,
                )
                part = tl.load(
                    w + depth[:, None] * H + of[None, :],
                    mask=inside[:, None] & (of[None, :] < H),
                    other=0.0,
                )
                dh = tl.dot(told, part, dh)
            tl.store(d_h + state, dh, mask=ok)
        tl.debug_barrier()
