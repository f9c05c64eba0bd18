"""Optimisers: the default, and the one of the released training code."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

OptimizerName = Literal["adamw", "adagrad"]


def make_optimizer(
    model: nn.Module,
    name: OptimizerName = "adamw",
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Return an optimiser of all parameters.

    Args:
        model: What to train.
        name: `adamw`, or `adagrad` as bilm-tf has it. That one goes with `lr=0.2`, gradients of
            the loss times the window's number of tokens, and `clip_gradients(..., 10)`.
        lr: Learning rate; `set_learning_rate` changes it later.
        betas: Decay of the two moments of AdamW.
        weight_decay: Of AdamW, on matrices; biases are left alone.
    """
    if name == "adagrad":
        # TensorFlow divides by the root of the sum alone; the sum starts at 1, so that is safe.
        return torch.optim.Adagrad(
            model.parameters(), lr=lr, initial_accumulator_value=1.0, eps=0.0
        )
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    # Fused: one pass over parameters, gradients and moments instead of about ten. The rate of a
    # step that is replayed as a CUDA graph must be on the device, to be changed in place.
    device = matrices[0].device
    on_cuda = device.type == "cuda"
    rate = torch.tensor(lr, device=device) if on_cuda else lr
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True, capturable=on_cuda)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the rate of all parameters, in place where it is on the device."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scale all gradients together so that their norm is at most `max_norm`, as TensorFlow does.

    Return the norm before that, on the device: reading it is left to those who need it.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    # Without PyTorch's small number in the divisor; and a NaN stays a NaN for all to see.
    torch._foreach_mul_(grads, max_norm / norm.clamp(min=max_norm))
    return norm
