"""A captured function that runs long texts without a graph."""

from collections.abc import Callable

from torch import Tensor

from elmore.bilm.kernels.graphs import CapturedFunction

_MAX_TOKENS = 1024  # a capture takes time and memory for every token


class Replayed:
    """A function of x (T, ...) and another tensor whose graphs are limited in length."""

    def __init__(self, run: Callable[[Tensor, Tensor], list[Tensor]]) -> None:
        self._run = run
        self._captured = CapturedFunction(run)

    def __call__(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """Return what the function returns; the next call overwrites it."""
        return self._run(x, y) if len(x) > _MAX_TOKENS else list(self._captured(x, y))
