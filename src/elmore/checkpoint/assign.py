"""A configuration and a state dict to a biLM, strictly and without drawing weights first."""

from collections.abc import Mapping

import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.unfilled import unfilled
from elmore.errors import InputError


def build(config: BiLMConfig, state: Mapping[str, Tensor], where: str) -> BiLM:
    """Return a biLM in evaluation mode whose parameters are exactly those of `state`."""
    with unfilled():
        bilm = BiLM(config)
    expected = bilm.state_dict()
    for problem, names in (
        ("lacks", expected.keys() - state.keys()),
        ("has, beyond what the configuration describes,", state.keys() - expected.keys()),
    ):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
            raise InputError(f"{where} {problem} {len(names)} weights: {shown}")
    for name, value in state.items():
        if value.shape != expected[name].shape:
            raise InputError(
                f"{where}: {name} has shape {tuple(value.shape)}, the configuration asks for "
                f"{tuple(expected[name].shape)}"
            )
    # Copies, in float32: a tensor that maps a file may be unaligned, and then rounds differently.
    own = {
        name: value.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        for name, value in state.items()
    }
    bilm.load_state_dict(own, assign=True)
    return bilm.eval()
