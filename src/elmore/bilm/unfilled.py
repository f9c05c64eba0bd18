"""Modules with shapes and no numbers, for weights that come from elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@contextmanager
def unfilled() -> Iterator[None]:
    """Make modules without memory: nothing is drawn only to be overwritten."""
    with torch.device("meta"), _NoDraws():
        yield


class _NoDraws(TorchFunctionMode):
    """Leaves parameters as they are.

    To draw normal numbers into no memory, torch would load its compiler: seconds for nothing.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is nn.init.normal_:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
