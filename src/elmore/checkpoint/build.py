"""Build a module from weights on disk, without initializing it first."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmore.checkpoint.hash import hash_weights
from elmore.errors import InputError

M = TypeVar("M", bound=nn.Module)


def build(
    new: Callable[[], M],
    weights: Iterable[tuple[str, Tensor]],
    where: str,
    expected_hash: str | None = None,
) -> M:
    """Return a module in evaluation mode with the given weights, as float32.

    Args:
        new: Makes the module.
        weights: Names and values of its state dict. An iterator that reads one tensor at a time
            avoids having the file and the model in memory together.
        where: Start of every error message: a file name, for example.
        expected_hash: The result of `hash_weights` when the weights were written, if known.

    Raises:
        InputError: If a weight is missing, unexpected, damaged, of the wrong shape or not finite.
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
        elif not value.is_floating_point():
            raise InputError(f"{where}: {name} has type {value.dtype}; expected floating point")
        else:
            # A copy, because a memory-mapped tensor may be unaligned, which changes rounding.
            state[name] = value.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            if not torch.stack(state[name].aminmax()).isfinite().all():
                raise InputError(f"{where}: {name} has values that are NaN or infinite")
    missing = expected.keys() - state.keys()
    for problem, names in (("missing", missing), ("unexpected", unexpected)):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
            raise InputError(
                f"{where} does not match its configuration; {problem} weights ({len(names)}): "
                f"{shown}"
            )
    if expected_hash is not None and hash_weights(state) != expected_hash:
        raise InputError(
            f"{where} is damaged: its weights differ from those that elmore wrote. Copy or convert "
            "it again."
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
