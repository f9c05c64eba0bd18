"""One optimizer step of biLM pre-training: the whole algorithm on one screen."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLMState
from elmore.bilm.softmax import Negatives
from elmore.text.windows import LMBatch
from elmore.training.optim import clip_gradients


class StepResult(NamedTuple):
    """Metrics of a step, and the LSTM state for the next one."""

    losses: Float[Tensor, " 2"]
    grad_norm: Float[Tensor, ""]
    state: BiLMState


def train_step(
    model: nn.Module,
    optimizer: Optimizer,
    batch: LMBatch,
    state: BiLMState,
    negatives: Negatives | None,
    *,
    clip_norm: float,
    loss_scale: float = 1.0,
    parts: int = 1,
) -> StepResult:
    """Train on one window.

    Args:
        model: A `LanguageModel`, which DDP may wrap.
        optimizer: Updates the parameters of the model.
        batch: One window of every row.
        state: LSTM state after the previous window.
        negatives: Words of the sampled softmax; None for the full softmax.
        clip_norm: Maximum norm of the gradient.
        loss_scale: Factor on the loss before back-propagation.
        parts: Gradient accumulation: compute the rows in this many parts.
    """
    optimizer.zero_grad(set_to_none=True)
    losses, after = [], []
    for part, before in _split_rows(batch, state, parts):
        # bfloat16 on a GPU, float32 on a CPU; weights and accumulators are always float32.
        with torch.autocast("cuda", torch.bfloat16, enabled=part.words.is_cuda):
            output = model(part, before, negatives)
        (output.loss * (loss_scale / parts)).backward()
        losses.append(output.losses)
        after.append(output.state)
    grad_norm = clip_gradients(model.parameters(), clip_norm)
    optimizer.step()
    # Tensors, not floats: reading a number would make the CPU wait for the GPU.
    return StepResult(torch.stack(losses).mean(dim=0), grad_norm, _join_rows(after))


def _split_rows(
    batch: LMBatch, state: BiLMState, parts: int
) -> Iterator[tuple[LMBatch, BiLMState]]:
    """Split a batch and its state into parts of equally many rows."""
    states = zip(*(zip(h.chunk(parts), c.chunk(parts), strict=True) for h, c in state), strict=True)
    rows = zip(*(x.chunk(parts, dim=1) for x in batch[1:]), strict=True)
    for part, layers in zip(rows, states, strict=True):
        yield LMBatch(batch.distinct, *part), [LSTMState(*layer) for layer in layers]


def _join_rows(parts: list[BiLMState]) -> BiLMState:
    if len(parts) == 1:
        return parts[0]
    return [
        LSTMState(*(torch.cat(rows) for rows in zip(*layers, strict=True)))
        for layers in zip(*parts, strict=True)
    ]
