"""Muon: momentum with orthogonalized updates, for the weight matrices of hidden layers.

Jordan et al. (2024), https://kellerjordan.github.io/posts/muon. Updates are scaled to the size of
AdamW's, as in Liu et al. (2025), https://arxiv.org/abs/2502.16982, so both use one learning rate.
"""

from collections import defaultdict
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_RMS = 0.2  # root mean square of an update of AdamW


class Muon(torch.optim.AdamW):
    """Muon for parameter groups with `muon=True`, AdamW for all others.

    Unlike `torch.optim.Muon`, it takes the learning rate as a tensor, so that a captured CUDA graph
    sees its changes, and it orthogonalizes all matrices of one shape at once.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters. The gradients of Muon's matrices are set to None."""
        for group in self.param_groups:
            if group.get("muon"):
                self._update_matrices(group)
        super().step(closure)  # skips parameters without a gradient

    def _update_matrices(self, group: dict[str, Any]) -> None:
        lr = group["lr"]
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for p in group["params"]:
            if p.grad is not None:  # it is None if the layer is frozen
                by_shape[p.shape].append(p)
        for shape, matrices in by_shape.items():
            updates = orthogonalize(torch.stack([self._momentum(p) for p in matrices]))
            scale = _RMS * max(shape) ** 0.5
            for p, update in zip(matrices, updates, strict=True):
                p.mul_(1 - lr * group["weight_decay"])
                p.sub_(update * (lr * scale))
                p.grad = None

    def _momentum(self, p: Tensor) -> Tensor:
        """Return the gradient with Nesterov momentum."""
        state = self.state[p]
        if not state:  # named as in AdamW, whose `load_state_dict` reads `step`
            state["step"], state["exp_avg"] = torch.zeros(()), torch.zeros_like(p)
        momentum: Tensor = state["exp_avg"].lerp_(p.grad, 1 - _MOMENTUM)
        return p.grad.lerp(momentum, _MOMENTUM)  # type: ignore[union-attr]


def orthogonalize(matrices: Float[Tensor, "N A B"]) -> Float[Tensor, "N A B"]:
    """Replace the singular values of each matrix by values close to 1.

    Uses five Newton-Schulz iterations in bfloat16; the results lie between about 0.7 and 1.2.
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return (x.mT if tall else x).float()
