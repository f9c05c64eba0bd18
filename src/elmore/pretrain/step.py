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
    """What one step reports, and what it hands to the next."""

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
    """Fit one window. `model` is a LanguageModel, as it is or wrapped by DDP."""
    optimizer.zero_grad(set_to_none=True)
    losses, after = [], []
    for part, before in _split_rows(batch, state, parts):
        # In bfloat16 on a GPU, in float32 elsewhere; sums and weights are float32 on both.
        with torch.autocast("cuda", torch.bfloat16, enabled=part.words.is_cuda):
            output = model(part, before, negatives)
        (output.loss * (loss_scale / parts)).backward()
        losses.append(output.losses)
        after.append(output.state)
    grad_norm = clip_gradients(model.parameters(), clip_norm)
    optimizer.step()
    # Tensors, not floats: reading a number would make the host wait for the device.
    return StepResult(torch.stack(losses).mean(dim=0), grad_norm, _join_rows(after))


def _split_rows(
    batch: LMBatch, state: BiLMState, parts: int
) -> Iterator[tuple[LMBatch, BiLMState]]:
    """Yield some rows of the batch at a time, with their state."""
    states = zip(*(zip(h.chunk(parts), c.chunk(parts), strict=True) for h, c in state), strict=True)
    rows = zip(*(x.chunk(parts, dim=1) for x in batch[1:]), strict=True)
    for some, layers in zip(rows, states, strict=True):
        yield LMBatch(batch.distinct, *some), [LSTMState(*layer) for layer in layers]


def _join_rows(parts: list[BiLMState]) -> BiLMState:
    if len(parts) == 1:
        return parts[0]
    return [
        LSTMState(*(torch.cat(rows) for rows in zip(*layers, strict=True)))
        for layers in zip(*parts, strict=True)
    ]
