"""Sampled softmax that keeps one matrix of M x S values in half precision, and no other.

Logits are float32, some rows at a time. One kernel turns them into losses and probabilities,
which are all that the gradient needs.

A target that was drawn as well is no wrong answer: its place among the sampled words is free.
The gradient of the right answer is put there, so that the large products carry it to the table
for all frequent words; only targets that were not drawn, which are rare words and seldom repeat,
are added to the table one by one.

M positions, D token dim, V words, S sampled words.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from elmore.bilm.kernels import compute_dtype, multiply

_ROWS_AT_ONCE = 8192


def sampled_nll(
    h: Float[Tensor, "M D"],
    targets: Int[Tensor, " M"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"],
    sampled: Int[Tensor, " S"],
    log_counts: Float[Tensor, " V"],
) -> Float[Tensor, " M"]:
    """-log p of each target among itself and the sampled words (Jean et al., 2015)."""
    return _SampledNLL.apply(
        h.to(compute_dtype(weight)).contiguous(), targets, weight, bias, sampled, log_counts
    )


class _SampledNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor,
        sampled: Tensor,
        log_counts: Tensor,
    ) -> Tensor:
        (M, D), S = h.shape, len(sampled)
        shift = bias - log_counts
        w = weight[sampled].to(h.dtype)  # (S, D)
        nll = torch.empty(M, device=h.device)
        right = torch.empty(M, device=h.device)  # gradient of a right answer that was not drawn
        wrong = torch.empty(M, S, dtype=h.dtype, device=h.device)  # gradient of the others
        logits = torch.empty(1, min(M, _ROWS_AT_ONCE), S, device=h.device)
        sampled_shift = shift[sampled]
        # Which of the sampled words a word is, if it is one.
        slots = torch.full((len(bias),), -1, dtype=torch.int32, device=h.device)
        slots[sampled] = torch.arange(S, dtype=torch.int32, device=h.device)
        for start in range(0, M, _ROWS_AT_ONCE):
            rows = min(_ROWS_AT_ONCE, M - start)
            multiply(h[None, start : start + rows], w.T[None], logits[:, :rows])
            _losses[(rows,)](
                logits, h, weight, shift, sampled_shift, slots, targets, nll, right, wrong,
                start, D, S, triton.next_power_of_2(D), triton.next_power_of_2(S), num_warps=8,
            )  # fmt: skip
        ctx.save_for_backward(h, targets, weight, w, sampled, right, wrong)
        return nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, targets, weight, w, sampled, right, wrong = ctx.saved_tensors
        (M, D), (V, _), S = h.shape, weight.shape, len(sampled)
        grad = grad.contiguous()
        # A mean's 1 / M would be rounded in half precision, all gradients by the same factor.
        unit = grad.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
        share = (grad / unit).to(h.dtype)
        d_w = torch.empty(1, S, D, device=h.device)
        d_b = torch.empty(1, 1, S, device=h.device)
        multiply(wrong.T[None], (h * share[:, None])[None], d_w)
        multiply(share[None, None], wrong[None], d_b)
        d_weight = torch.zeros_like(weight).index_copy_(0, sampled, d_w[0] * unit)
        d_bias = torch.zeros(V, device=h.device).index_copy_(0, sampled, d_b[0, 0] * unit)
        d_h = wrong @ w
        _add_right_answers[(M,)](
            grad, right, targets, h, weight, d_h, d_weight, d_bias, D, triton.next_power_of_2(D)
        )
        return d_h, None, d_weight, d_bias, None, None


@triton.jit(do_not_specialize=["start"])
def _losses(
    logits, h, weight, shift, sampled_shift, slots, targets, nll, right, wrong,
    start, D: tl.constexpr, S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """One position: its loss, and the gradient of its logits."""
    row = tl.program_id(0).to(tl.int64)
    position = start + row
    target = tl.load(targets + position)
    d = tl.arange(0, BLOCK_D)
    own_h = tl.load(h + position * D + d, d < D, 0).to(tl.float32)
    own_w = tl.load(weight + target * D + d, d < D, 0)
    true = tl.sum(own_h * own_w) + tl.load(shift + target)

    s = tl.arange(0, BLOCK_S)
    slot = tl.load(slots + target)
    x = tl.load(logits + row * S + s, s < S, -float("inf")) + tl.load(sampled_shift + s, s < S, 0)
    x = tl.where(s == slot, -float("inf"), x)
    top = tl.maximum(tl.max(x), true)
    log_sum = top + tl.log(tl.sum(tl.exp(x - top)) + tl.exp(true - top))
    error = tl.exp(true - log_sum) - 1
    p = tl.where(s == slot, error, tl.exp(x - log_sum))
    tl.store(wrong + position * S + s, p.to(wrong.dtype.element_ty), s < S)
    tl.store(nll + position, log_sum - true)
    tl.store(right + position, tl.where(slot >= 0, 0.0, error))


@triton.jit
def _add_right_answers(
    grad, right, targets, h, weight, d_h, d_weight, d_bias, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    """One position: scale its gradient, and add what a target that was not drawn gives."""
    position = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    own = position * D + d
    scale = tl.load(grad + position)
    error = tl.load(right + position)
    g = tl.load(d_h + own, d < D, 0).to(tl.float32)
    if error != 0:
        target = tl.load(targets + position)
        g += error * tl.load(weight + target * D + d, d < D, 0)
        x = tl.load(h + own, d < D, 0).to(tl.float32)
        tl.atomic_add(d_weight + target * D + d, scale * error * x, d < D)
        tl.atomic_add(d_bias + target, scale * error)
    tl.store(d_h + own, (g * scale).to(d_h.dtype.element_ty), d < D)
