"""CUDA graphs: launch all kernels of a function with one call.

A batch needs thousands of kernels, and the host takes about as long to launch one as the device
takes to run it. A captured CUDA graph launches all of them with one call, so that the host has
time to prepare the next batch.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

_capturing = Lock()  # a process can capture only one graph at a time


class CapturedFunction:
    """A function of CUDA tensors, captured as one CUDA graph for each combination of input shapes.

    All graphs share one memory pool, as large as the largest graph needs. The next call therefore
    overwrites the results, whatever its shapes: use or copy them first. Copy them also if they are
    arguments of the next call.

    The function must not read tensors on the host. Weights and other tensors that are not arguments
    must be updated in place. Generators may be seeded before a call.

    Calls must not overlap: threads that share a captured function need a lock.

    Args:
        run: The function to capture.
        generators: Random number generators that it uses, besides the default one of the device.
        warm_up: Uncaptured calls for each combination of shapes, which compile the kernels.
        max_graphs: Graphs to keep; the least recently used one is dropped first.
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
        self._graphs: dict[Any, _Graph] = {}  # most recently used last
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the results of the function. Inputs are copied, so the caller may change them."""
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
    """A captured call, and the tensors for its inputs and outputs."""

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
        # "thread_local": other threads may call CUDA during the capture.
        with torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"):
            inputs = [torch.empty_like(x) for x in tensors]
            outputs = run(*inputs)
        # Tensors that do not own their memory let the next graph of the pool reuse it. The memory
        # stays allocated as long as any graph uses the pool.
        self._inputs = [_without_owner(x) for x in inputs]
        self._outputs = tuple(_without_owner(x) for x in outputs)

    @property
    def pool(self) -> Any:
        """The memory pool, for other graphs that do not run at the same time."""
        return self._graph.pool()

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        for captured, tensor in zip(self._inputs, tensors, strict=True):
            captured.copy_(tensor)
        self._graph.replay()
        return self._outputs


class _Memory:
    """The memory of a tensor, as an object with the CUDA array interface."""

    def __init__(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        self.__cuda_array_interface__ = {
            "data": (storage.data_ptr(), False),
            "shape": (storage.nbytes(),),
            "typestr": "|u1",
            "version": 3,
        }


def _without_owner(x: Tensor) -> Tensor:
    """Return a tensor that uses the same memory, but does not keep it allocated."""
    data = torch.as_tensor(_Memory(x), device=x.device).view(x.dtype)
    return data.as_strided(x.shape, x.stride(), x.storage_offset())
