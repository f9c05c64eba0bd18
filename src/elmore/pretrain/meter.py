"""Running averages of the training metrics.

Reading a number from a GPU makes the CPU wait for it, so sums stay on the device between log lines.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Reading(NamedTuple):
    """Metrics since the previous reading."""

    steps: int
    losses: Float[Tensor, " 2"]
    """Mean loss of the forward and the backward language model."""

    grad_norm: float
    """Gradient norm of the last step."""

    seconds: float


class Meter:
    """Accumulates losses and gradient norms on the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._reset()

    def _reset(self) -> None:
        self._steps = 0
        self._losses = torch.zeros(2, device=self._device)
        self._grad_norm = torch.zeros((), device=self._device)
        self._total = torch.zeros((), device=self._device)
        self._start = time.monotonic()

    def add(self, losses: Float[Tensor, " 2"], grad_norm: Float[Tensor, ""]) -> None:
        """Add the metrics of one step."""
        self._steps += 1
        self._losses = self._losses + losses
        self._grad_norm = grad_norm
        self._total = self._total + losses.sum() + grad_norm

    def finite(self) -> bool:
        """Whether all losses and gradient norms since the last reading are finite."""
        return bool(torch.isfinite(self._total))

    def read(self) -> Reading:
        """Return the metrics since the last reading, and start over."""
        seconds = time.monotonic() - self._start
        losses = self._losses / self._steps
        reading = Reading(self._steps, losses, float(self._grad_norm), seconds)
        self._reset()
        return reading

    def tensors(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint stores."""
        return {"steps": torch.tensor(self._steps), "losses": self._losses}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from a checkpoint."""
        self._steps = int(tensors["steps"])
        self._losses = tensors["losses"].to(self._device)
