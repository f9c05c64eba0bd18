"""A configuration and weights to a biLM, with strict checks and without random initialization."""

from collections.abc import Iterable

import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.meta import on_meta_device
from elmore.errors import InputError


def build(config: BiLMConfig, weights: Iterable[tuple[str, Tensor]], where: str) -> BiLM:
    """Return a biLM in evaluation mode with the given weights, as float32.

    Args:
        config: Sizes of the biLM.
        weights: Names and values of its state dict. An iterator that reads one tensor at a time
            keeps the file and the model from being in memory together.
        where: Start of every error message: a file name, for example.

    Raises:
        InputError: If a weight is missing, unexpected or of the wrong shape.
    """
    with on_meta_device():
        bilm = BiLM(config)
    expected = bilm.state_dict()
    state: dict[str, Tensor] = {}
    unexpected: list[str] = []
    for name, value in weights:
        if name not in expected:
            unexpected.append(name)
        elif value.shape != expected[name].shape:
            raise InputError(
                f"{where}: {name} has shape {tuple(value.shape)}; its configuration requires "
                f"{tuple(expected[name].shape)}"
            )
        else:
            # A copy, because a memory-mapped tensor may be unaligned, which changes rounding.
            state[name] = value.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    for problem, names in (
        ("missing", expected.keys() - state.keys()),
        ("unexpected", unexpected),
    ):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
            raise InputError(
                f"{where} does not match its configuration; {problem} weights ({len(names)}): "
                f"{shown}"
            )
    bilm.load_state_dict(state, assign=True)
    return bilm.eval()
