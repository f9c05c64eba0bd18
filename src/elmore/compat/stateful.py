"""LSTM state that is carried from batch to batch, as AllenNLP and bilm-tf do.

B sentences, T tokens including the boundary tokens, C characters, J layers, D dim.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLMOutput, BiLMState


class StatefulBiLM:
    """Runs a biLM and keeps the LSTM state of each row for the next batch.

    Args:
        run: Maps ids, mask and state to layers and the new state.
        stateful: If False, every batch starts from the zero state.
    """

    def __init__(self, run: Callable[..., BiLMOutput], *, stateful: bool = True) -> None:
        self.run = run
        self.stateful = stateful
        self._state: BiLMState | None = None

    def reset_states(self) -> None:
        """Reset the state to zero."""
        self._state = None

    def convert_state(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Convert all tensors of the state, such as to another device."""
        if self._state is not None:
            self._state = [LSTMState(*map(convert, layer)) for layer in self._state]

    def __call__(
        self, ids: Int[Tensor, "B T *C"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B J T D"]:
        """Return all layers, and keep the new state."""
        before = _fit_rows(self._state, len(ids)) if self.stateful and self._state else None
        layers, after = self.run(ids, mask, before)
        if self.stateful:
            self._state = _merge(self._state, after)
        return layers


def _fit_rows(state: BiLMState, rows: int) -> BiLMState:
    """Truncate a state to a number of rows, or pad it with zeros."""

    def fit(x: Tensor) -> Tensor:
        return nn.functional.pad(x[:rows], (0, 0, 0, max(0, rows - len(x))))

    return [LSTMState(fit(layer.output), fit(layer.cell)) for layer in state]


def _merge(before: BiLMState | None, after: BiLMState) -> BiLMState:
    """Update the rows of this batch; the other rows keep their state."""
    after = [LSTMState(layer.output.detach(), layer.cell.detach()) for layer in after]
    if before is None:
        return after
    return [
        LSTMState(*(torch.cat([new, old[len(new) :]]) for new, old in zip(a, b, strict=True)))
        for a, b in zip(after, before, strict=True)
    ]
