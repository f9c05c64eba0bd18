"""Rows of a table as whole numbers: a quarter of the bytes of float32.

V rows, D dim.
"""

import torch
from jaxtyping import Float, Int8
from torch import Tensor

_LARGEST = 127


def quantize_rows(
    table: Float[Tensor, "V D"],
) -> tuple[Int8[Tensor, "V D"], Float[Tensor, " V"]]:
    """Return each row as multiples of a step of its own, and the steps."""
    step = table.abs().amax(dim=1) / _LARGEST  # (V,)
    step = torch.where(step == 0, torch.ones_like(step), step)  # a row of zeros has any step
    return (table / step[:, None]).round().to(torch.int8), step


def restore_rows(multiples: Int8[Tensor, "V D"], step: Float[Tensor, " V"]) -> Float[Tensor, "V D"]:
    """Undo `quantize_rows`, up to half a step."""
    return multiples * step.float()[:, None]
