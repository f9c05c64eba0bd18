"""A configuration and its weights to a biLM, strictly and without drawing weights first."""

from collections.abc import Iterable

import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.meta import on_meta_device
from elmore.errors import InputError


def build(config: BiLMConfig, weights: Iterable[tuple[str, Tensor]], where: str) -> BiLM:
    """Return a biLM in evaluation mode whose parameters are exactly `weights`.

    They come one by one, so that a file and what is made of it need not be in memory together.
    """
    with on_meta_device():
        bilm = BiLM(config)
    expected = bilm.state_dict()
    state: dict[str, Tensor] = {}
    beyond: list[str] = []
    for name, value in weights:
        if name not in expected:
            beyond.append(name)
        elif value.shape != expected[name].shape:
            raise InputError(
                f"{where}: {name} has shape {tuple(value.shape)}, the configuration asks for "
                f"{tuple(expected[name].shape)}"
            )
        else:
            # A copy, in float32: what maps a file may be unaligned, and then rounds differently.
            state[name] = value.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    for problem, names in (
        ("lacks", expected.keys() - state.keys()),
        ("has, beyond what the configuration describes,", beyond),
    ):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
            raise InputError(f"{where} {problem} {len(names)} weights: {shown}")
    bilm.load_state_dict(state, assign=True)
    return bilm.eval()
