"""Tensors to the device that computes, without waiting for it."""

import torch
from torch import Tensor


def send(x: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; one that is there is returned as it is."""
    if x.is_cuda or device.type != "cuda":
        return x.to(device)
    # From memory that the system may move, the copy would wait for all that was asked before.
    return x.pin_memory().to(device, non_blocking=True)
