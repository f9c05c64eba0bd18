"""Sampled softmax that stores only one M x S matrix, in the autocast dtype.

Logits are computed in float32, for one block of rows at a time. One kernel computes losses and
gradients of the logits from them. The backward pass needs only these gradients.

A target that was also sampled is not a negative, so its column of the matrix is free. The kernel
stores the gradient of the target's logit there, and the matrix products of the backward pass
include it. The other targets are added to the gradient of the weights by atomic additions. They
are rare words, so few of these additions collide.

M positions, D dim, V words in the vocabulary, S sampled words.
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
    """Return the sampled-softmax loss of each target (Jean et al., 2015)."""
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
        # Gradients of the logits, of targets that were not sampled and of sampled words.
        d_target = torch.empty(M, device=h.device)
        d_sampled = torch.empty(M, S, dtype=h.dtype, device=h.device)
        logits = torch.empty(1, min(M, _ROWS_AT_ONCE), S, device=h.device)
        sampled_shift = shift[sampled]
        # The column of each sampled word, -1 for the other words.
        slots = torch.full((len(bias),), -1, dtype=torch.int32, device=h.device)
        slots[sampled] = torch.arange(S, dtype=torch.int32, device=h.device)
        for start in range(0, M, _ROWS_AT_ONCE):
            rows = min(_ROWS_AT_ONCE, M - start)
            multiply(h[None, start : start + rows], w.T[None], logits[:, :rows])
            _losses[(rows,)](
                logits, h, weight, shift, sampled_shift, slots, targets, nll, d_target, d_sampled,
                start, D, S, triton.next_power_of_2(D), triton.next_power_of_2(S), num_warps=8,
            )  # fmt: skip
        ctx.save_for_backward(h, targets, weight, w, sampled, d_target, d_sampled)
        return nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, targets, weight, w, sampled, d_target, d_sampled = ctx.saved_tensors
        (M, D), (V, _), S = h.shape, weight.shape, len(sampled)
        grad = grad.contiguous()
        # Normalize first: 1 / M, the gradient of a mean, is not exact in bfloat16, but 1 is.
        scale = grad.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
        scaled = (grad / scale).to(h.dtype)
        d_w = torch.empty(1, S, D, device=h.device)
        d_b = torch.empty(1, 1, S, device=h.device)
        multiply(d_sampled.T[None], (h * scaled[:, None])[None], d_w)
        multiply(scaled[None, None], d_sampled[None], d_b)
        d_weight = torch.zeros_like(weight).index_copy_(0, sampled, d_w[0] * scale)
        d_bias = torch.zeros(V, device=h.device).index_copy_(0, sampled, d_b[0, 0] * scale)
        d_h = d_sampled @ w
        _add_targets[(M,)](
            grad, d_target, targets, h, weight, d_h, d_weight, d_bias, D, triton.next_power_of_2(D)
        )
        return d_h, None, d_weight, d_bias, None, None


@triton.jit(do_not_specialize=["start"])
def _losses(
    logits, h, weight, shift, sampled_shift, slots, targets, nll, d_target, d_sampled,
    start, D: tl.constexpr, S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Compute the loss of one position and the gradient of its logits."""
    row = tl.program_id(0).to(tl.int64)
    position = start + row
    target = tl.load(targets + position)
    d = tl.arange(0, BLOCK_D)
    h_row = tl.load(h + position * D + d, d < D, 0).to(tl.float32)
    w_row = tl.load(weight + target * D + d, d < D, 0)
    target_logit = tl.sum(h_row * w_row) + tl.load(shift + target)

    s = tl.arange(0, BLOCK_S)
    slot = tl.load(slots + target)
    x = tl.load(logits + row * S + s, s < S, -float("inf")) + tl.load(sampled_shift + s, s < S, 0)
    x = tl.where(s == slot, -float("inf"), x)
    top = tl.maximum(tl.max(x), target_logit)
    log_sum = top + tl.log(tl.sum(tl.exp(x - top)) + tl.exp(target_logit - top))
    error = tl.exp(target_logit - log_sum) - 1
    p = tl.where(s == slot, error, tl.exp(x - log_sum))
    tl.store(d_sampled + position * S + s, p.to(d_sampled.dtype.element_ty), s < S)
    tl.store(nll + position, log_sum - target_logit)
    tl.store(d_target + position, tl.where(slot >= 0, 0.0, error))


@triton.jit
def _add_targets(
    grad,
    d_target,
    targets,
    h,
    weight,
    d_h,
    d_weight,
    d_bias,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Scale the gradient of one position, and add the target's part if it was not sampled."""
    position = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    offset = position * D + d
    scale = tl.load(grad + position)
    error = tl.load(d_target + position)
    g = tl.load(d_h + offset, d < D, 0).to(tl.float32)
    if error != 0:
        target = tl.load(targets + position)
        g += error * tl.load(weight + target * D + d, d < D, 0)
        x = tl.load(h + offset, d < D, 0).to(tl.float32)
        tl.atomic_add(d_weight + target * D + d, scale * error * x, d < D)
        tl.atomic_add(d_bias + target, scale * error)
    tl.store(d_h + offset, (g * scale).to(d_h.dtype.element_ty), d < D)
