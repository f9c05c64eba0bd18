"""CUDA graphs: launch all kernels of a function at once.

A batch takes thousands of kernels, and to launch one takes the host about as long as the device
needs to run it. A captured graph of them is launched by a single call, which leaves the host time
to prepare the next batch.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

_capturing = Lock()  # PyTorch allows one capture at a time in a process


class CapturedFunction:
    """A function of CUDA tensors, captured as one CUDA graph for each combination of input shapes.

    Results are overwritten by the next call, whatever its shapes: use or copy them before. Copy
    them, too, before passing them to the next call. The reason is that only one graph runs at a
    time, so all graphs share one memory pool, which is as large as the largest graph needs.

    The function must compute all results on the device, without reading any of them. Other tensors
    that it uses, such as weights, must be updated in place. Generators may be seeded before a call.

    Calls must not overlap: threads that share a captured function need a lock.

    Args:
        run: The function to capture.
        generators: Random number generators that it uses, besides the device's default one.
        warm_up: Calls for each combination of shapes that run without a graph, to compile kernels.
        max_graphs: Graphs to keep. Beyond that, the least recently used one is dropped.
    """

    def __init__(
        self,
        run: Callable[..., Sequence[Tensor]],
        generators: Sequence[torch.Generator] = (),
        *,
        warm_up: int = 1,
        max_graphs: int = 16,
    ) -> None:
        self._run = run
        self._generators = generators
        self._warm_up = warm_up
        self._max_graphs = max_graphs
        self._calls: Counter[Any] = Counter()
        self._graphs: dict[Any, _Graph] = {}  # the most recently used one last
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return what the function returns for these inputs, which are copied first."""
        key = tuple((x.shape, x.dtype) for x in tensors)
        if self._calls[key] < self._warm_up:
            self._calls[key] += 1
            return tuple(self._run(*tensors))
        graph = self._graphs.pop(key, None) or self._capture(tensors)
        self._graphs[key] = graph
        if len(self._graphs) > self._max_graphs:
            del self._graphs[next(iter(self._graphs))]
        return graph(*tensors)

    def _capture(self, tensors: Sequence[Tensor]) -> "_Graph":
        # PyTorch reuses the memory of a pool only within one stream.
        self._stream = self._stream or torch.cuda.Stream(tensors[0].device)
        pool = next((graph.pool for graph in self._graphs.values()), None)
        with _capturing:
            return _Graph(self._run, tensors, self._generators, self._stream, pool)


class _Graph:
    """The captured kernels of a call, and the memory that they read and write."""

    def __init__(
        self,
        run: Callable[..., Sequence[Tensor]],
        tensors: Sequence[Tensor],
        generators: Sequence[torch.Generator],
        stream: torch.cuda.Stream,
        pool: Any,
    ) -> None:
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        # "thread_local": other threads may copy results meanwhile.
        with torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"):
            inputs = [torch.empty_like(x) for x in tensors]
            outputs = run(*inputs)
        # Without owners, this memory is free for the next graph of the pool, like all temporary
        # tensors of this one. It stays allocated as long as a graph uses the pool.
        self._inputs = [_without_owner(x) for x in inputs]
        self._outputs = tuple(_without_owner(x) for x in outputs)

    @property
    def pool(self) -> Any:
        """The memory pool, for other graphs that never run at the same time."""
        return self._graph.pool()

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        for own, given in zip(self._inputs, tensors, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._outputs


class _Memory:
    """The address of a tensor's memory, in the form that PyTorch and CuPy exchange."""

    def __init__(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        self.__cuda_array_interface__ = {
            "data": (storage.data_ptr(), False),
            "shape": (storage.nbytes(),),
            "typestr": "|u1",
            "version": 3,
        }


def _without_owner(x: Tensor) -> Tensor:
    """Return a tensor with the same memory that does not keep it allocated."""
    data = torch.as_tensor(_Memory(x), device=x.device).view(x.dtype)
    return data.as_strided(x.shape, x.stride(), x.storage_offset())
