"""A training step as one CUDA graph: the host asks for all its kernels at once.

A step is several hundred kernels, most of them short. Asked for one by one, they keep the device
waiting for the host unless batches are large.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from elmore.bilm.model import BiLMState
from elmore.text.windows import LMBatch

Step = Callable[[LMBatch, BiLMState], tuple[tuple[Tensor, ...], BiLMState]]
"""Fits a batch from a state; returns numbers to log, and the state after it."""

_WARM_UP = 3  # steps run as they are: they compile kernels and create the optimiser's moments


class GraphedStep:
    """A step that is recorded once for each shape of a batch, and replayed.

    The step must do its work on the device, without a look at any result. What it reads from
    elsewhere (weights, the optimiser's moments, a learning rate) must stay the same tensors, to
    be changed in place. Generators may be seeded before each call. The state it returns is
    overwritten by the next call, which is where it goes.

    Args:
        step: What to record.
        generators: Those that the step draws from, besides the device's default one.
        multiple: Distinct words are filled up to a multiple of this, so that there are few shapes.
    """

    def __init__(
        self, step: Step, generators: Sequence[torch.Generator] = (), *, multiple: int = 1024
    ) -> None:
        self._step = step
        self._generators = generators
        self._multiple = multiple
        self._calls = 0
        self._recordings: dict[int, _Recording] = {}

    def __call__(self, batch: LMBatch, state: BiLMState) -> tuple[tuple[Tensor, ...], BiLMState]:
        """Do what the step does; the batch may still be in the memory of the host."""
        self._calls += 1
        if self._calls <= _WARM_UP:
            device = state[0].cell.device
            return self._step(LMBatch(*(x.to(device, non_blocking=True) for x in batch)), state)
        size = len(batch.distinct) + -len(batch.distinct) % self._multiple
        if size not in self._recordings:
            other = next(iter(self._recordings.values()), None)
            self._recordings[size] = _Recording(
                self._step, batch, state, size, self._generators, other
            )
        return self._recordings[size](batch, state)


class _Recording:
    """The kernels of a step, and the memory that they read and write."""

    def __init__(
        self,
        step: Step,
        batch: LMBatch,
        state: BiLMState,
        size: int,
        generators: Sequence[torch.Generator],
        other: "_Recording | None",
    ) -> None:
        device = state[0].cell.device
        # Rows of zeros fill up the distinct words; none of the window's words refers to them.
        padding = (0, 0) * (batch.distinct.ndim - 1) + (0, size - len(batch.distinct))
        batch = batch._replace(distinct=functional.pad(batch.distinct, padding))
        self._batch = LMBatch(*(torch.empty_like(x, device=device) for x in batch))
        for ours, theirs in zip(self._batch, batch, strict=True):
            ours.copy_(theirs)
        self._state = [type(s)(s.output.clone(), s.cell.clone()) for s in state]
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        # Recordings never run at the same time, so they share their memory.
        pool = None if other is None else other._graph.pool()
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._results, self._after = step(self._batch, self._state)

    def __call__(self, batch: LMBatch, state: BiLMState) -> tuple[tuple[Tensor, ...], BiLMState]:
        words = self._batch.distinct
        words[: len(batch.distinct)].copy_(batch.distinct, non_blocking=True)
        words[len(batch.distinct) :].zero_()
        for ours, theirs in zip(self._batch[1:], batch[1:], strict=True):
            ours.copy_(theirs, non_blocking=True)
        for mine, given in zip(self._state, state, strict=True):
            mine.output.copy_(given.output)
            mine.cell.copy_(given.cell)
        self._graph.replay()
        return tuple(x.clone() for x in self._results), self._after
