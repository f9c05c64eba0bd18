"""What steps report, summed up on the device until somebody reads it.

Reading a number makes the host wait for the device, so it is done now and then, not every step.
"""

import time
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor


class Meter:
    """Sums of what steps report, on the device until somebody reads them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._reset()

    def _reset(self) -> None:
        self._steps = 0
        self._losses = torch.zeros(2, device=self._device)
        self._grad_norm = torch.zeros((), device=self._device)
        self._total = torch.zeros((), device=self._device)
        self._began = time.monotonic()

    def add(self, losses: Float[Tensor, " 2"], grad_norm: Float[Tensor, ""]) -> None:
        """Count a step."""
        self._steps += 1
        self._losses = self._losses + losses
        self._grad_norm = grad_norm
        self._total = self._total + losses.sum() + grad_norm

    def finite(self) -> bool:
        """Whether every loss and every gradient since the last reading was a number."""
        return bool(torch.isfinite(self._total))

    def read(self) -> tuple[int, Tensor, float, float]:
        """Return steps, mean losses, the last norm and the seconds since the last reading."""
        seconds = time.monotonic() - self._began
        found = (self._steps, self._losses / self._steps, float(self._grad_norm), seconds)
        self._reset()
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps of it."""
        return {"steps": torch.tensor(self._steps), "losses": self._losses}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        self._steps = int(tensors["steps"])
        self._losses = tensors["losses"].to(self._device)
