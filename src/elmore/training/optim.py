"""Optimizers and gradient clipping."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmore.training.muon import Muon

OptimizerName = Literal["adamw", "muon", "adagrad", "adadelta"]


def make_optimizer(
    model: nn.Module,
    name: OptimizerName = "adamw",
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.0,
    capturable: bool = True,
) -> torch.optim.Optimizer:
    """Return an optimizer of all parameters of a model.

    Args:
        model: The model.
        name: `adamw`; `muon` for the weights of linear layers and AdamW for the rest; `adadelta`;
            or `adagrad` as in bilm-tf, which is meant for `lr=0.2`, the loss times the window
            length, and `clip_gradients(..., 10)`.
        lr: Learning rate; `set_learning_rate` changes it later.
        betas: Moment decay rates of AdamW.
        weight_decay: Of AdamW and Muon, which apply it to matrices only, and of Adadelta.
        capturable: On a GPU, keep the learning rate of AdamW and Muon on the device, so that a
            captured CUDA graph sees its changes.
    """
    if name == "adagrad":
        # TensorFlow adds no epsilon: the accumulator starts at 1, so it is never zero.
        return torch.optim.Adagrad(
            model.parameters(), lr=lr, initial_accumulator_value=1.0, eps=0.0
        )
    if name == "adadelta":
        return torch.optim.Adadelta(
            model.parameters(), lr=lr, rho=0.95, eps=1e-6, weight_decay=weight_decay
        )
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if name == "muon":
        linear = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
        matrices = groups[0]["params"]
        groups[0]["params"] = [p for p in matrices if id(p) not in linear]
        muon = [p for p in matrices if id(p) in linear]
        groups.append({"params": muon, "weight_decay": weight_decay, "muon": True})
    device = parameters[0].device
    capturable = capturable and device.type == "cuda"
    # fused: one kernel for parameters, gradients and moments instead of about ten.
    optimizer = Muon if name == "muon" else torch.optim.AdamW
    return optimizer(
        groups,
        lr=torch.tensor(lr, device=device) if capturable else lr,
        betas=betas,
        fused=True,
        capturable=capturable,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all parameters, in place if it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scale all gradients so that their total norm is at most `max_norm`, as TensorFlow does.

    Returns:
        The norm before clipping, on the device of the gradients.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    # PyTorch's clip_grad_norm_ adds 1e-6 to the norm. Here, a NaN also stays a NaN.
    torch._foreach_mul_(grads, max_norm / norm.clamp(min=max_norm))
    return norm
