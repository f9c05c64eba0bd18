"""A training step as one CUDA graph.

A step takes several hundred kernels, most of them short. Launched one by one, they keep the device
waiting for the host unless batches are large.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import torch
from torch import Tensor
from torch.nn import functional

from elmore.bilm.kernels.graphs import CapturedFunction
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLMState
from elmore.pretrain.step import StepResult
from elmore.text.windows import LMBatch

Step = Callable[[LMBatch, BiLMState], StepResult]
"""Trains on a batch, from a state."""

_WARM_UP = 3  # steps without a graph, which compile kernels and create the optimizer's state


class GraphedStep:
    """A step that is captured once for each number of distinct words, and replayed.

    What `CapturedFunction` requires of a function holds for the step. Returned tensors are copies.

    Args:
        step: The step to capture.
        generators: Random number generators that it uses, besides the device's default one.
        multiple: Distinct words are padded to a multiple of this, so that there are few graphs.
    """

    def __init__(
        self, step: Step, generators: Sequence[torch.Generator] = (), *, multiple: int = 1024
    ) -> None:
        self._step = step
        self._multiple = multiple
        self._warm_up = _WARM_UP
        self._captured = CapturedFunction(self._run, generators, warm_up=0)

    def __call__(self, batch: LMBatch, state: BiLMState) -> StepResult:
        """Run the step; the batch may still be in host memory."""
        device = state[0].cell.device
        batch = LMBatch(*(x.to(device, non_blocking=True) for x in batch))
        if self._warm_up > 0:
            self._warm_up -= 1
            return self._step(batch, state)
        # Padding: rows of zeros that nothing in the window refers to.
        words = batch.distinct
        padding = (0, 0) * (words.ndim - 1) + (0, -len(words) % self._multiple)
        batch = batch._replace(distinct=functional.pad(words, padding))
        losses, grad_norm, *after = (x.clone() for x in self._captured(*batch, *chain(*state)))
        return StepResult(losses, grad_norm, _to_state(after))

    def _run(self, *tensors: Tensor) -> list[Tensor]:
        count = len(LMBatch._fields)
        result = self._step(LMBatch(*tensors[:count]), _to_state(tensors[count:]))
        return [result.losses, result.grad_norm, *chain(*result.state)]


def _to_state(tensors: Sequence[Tensor]) -> BiLMState:
    return [LSTMState(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]
