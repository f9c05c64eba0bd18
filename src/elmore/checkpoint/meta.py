"""Modules on the meta device, for weights that are assigned later."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build modules without allocating or initializing their weights."""
    with torch.device("meta"), _SkipNormalInit():
        yield


class _SkipNormalInit(TorchFunctionMode):
    """Skips `nn.init.normal_`: on the meta device it imports torch's compiler, which is slow."""

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
