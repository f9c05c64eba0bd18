"""Build a module from weights on disk, without initializing it first."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmore.errors import InputError

M = TypeVar("M", bound=nn.Module)


def build(new: Callable[[], M], weights: Iterable[tuple[str, Tensor]], where: str) -> M:
    """Return a module in evaluation mode with the given weights, as float32.

    Args:
        new: Makes the module.
        weights: Names and values of its state dict. An iterator that reads one tensor at a time
            avoids having the file and the model in memory together.
        where: Start of every error message: a file name, for example.

    Raises:
        InputError: If a weight is missing, unexpected or of the wrong shape.
    """
    with on_meta_device():
        module = new()
    expected = module.state_dict()
    state: dict[str, Tensor] = {}
    unexpected = []
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
    missing = expected.keys() - state.keys()
    for problem, names in (("missing", missing), ("unexpected", unexpected)):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
            raise InputError(
                f"{where} does not match its configuration; {problem} weights ({len(names)}): "
                f"{shown}"
            )
    module.load_state_dict(state, assign=True)
    return module.eval()


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build modules without allocating or initializing their weights."""
    with torch.device("meta"), _SkipNormalInit():
        yield


class _SkipNormalInit(TorchFunctionMode):
    """Skips `nn.init.normal_`: on the meta device it imports torch's compiler, which is slow."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        return None if func is nn.init.normal_ else func(*args, **(kwargs or {}))
