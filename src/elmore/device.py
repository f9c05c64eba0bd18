"""The device that an argument names: `auto`, `cpu`, `cuda` or one of several GPUs."""

import re

import torch

from elmore.errors import InputError

Device = str | torch.device
"""`auto`, `cpu`, `cuda`, one of several GPUs such as `cuda:1`, or a `torch.device`."""


def find_device(device: Device) -> torch.device:
    """Return the `torch.device` for a name; raise `InputError` if there is none."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise InputError(
            f"device must be auto, cpu, cuda or cuda:NUMBER, got {str(device)!r}. Other devices, "
            "such as mps, are not supported: elmore is not tested on them"
        )
    resolved = torch.device(device)
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"PyTorch finds {count} GPUs, so there is no {device}; try cpu")
    return resolved
