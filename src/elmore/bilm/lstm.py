"""The recurrent layer: an LSTM with a projected output, and bounds on what it carries.

B sentences, T tokens, I input dim, D output dim, H cell dim.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

_TOKENS_AT_ONCE = 4096  # whose gates, 4H values each, are in memory together


class LSTMState(NamedTuple):
    """What an LSTM carries from one token to the next."""

    output: Float[Tensor, "B D"]
    cell: Float[Tensor, "B H"]


class ProjectedLSTM(nn.Module):
    """LSTM whose H-dimensional cell is projected to D (Sak et al., 2014).

    State goes in and comes out as a value. The module remembers nothing between calls, so
    equal inputs always give equal outputs.
    """

    def __init__(
        self,
        *,
        in_dim: int,
        dim: int,
        cell_dim: int,
        project: bool = True,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
    ) -> None:
        super().__init__()
        self.input = nn.Linear(in_dim, 4 * cell_dim)
        self.recurrent = nn.Linear(dim, 4 * cell_dim, bias=False)
        self.project = nn.Linear(cell_dim, dim, bias=False) if project else nn.Identity()
        self.dim = dim
        self.cell_dim = cell_dim
        self.cell_clip = cell_clip
        # As in TensorFlow, only a projected output is bounded: the other is below 1 anyway.
        self.projection_clip = projection_clip if project else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as the released training code does: Glorot, forget bias 1."""
        # Glorot's bound is that of the one matrix which TensorFlow keeps for both inputs.
        fans = self.input.in_features + self.dim + 4 * self.cell_dim
        for linear in (self.input, self.recurrent):
            nn.init.uniform_(linear.weight, -((6 / fans) ** 0.5), (6 / fans) ** 0.5)
        if isinstance(self.project, nn.Linear):
            nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.input.bias)
        with torch.no_grad():
            self.input.bias[self.cell_dim : 2 * self.cell_dim] = 1

    def forward(
        self,
        x: Float[Tensor, "B T I"],
        mask: Bool[Tensor, "B T"] | None = None,
        state: LSTMState | None = None,
        continues: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        """Run over the tokens from first to last.

        Args:
            x: The tokens.
            mask: Where there are any, if not everywhere; a sentence that has ended keeps its state.
            state: From which to go on.
            continues: Where a token goes on from the one before it; elsewhere it starts anew.
        """
        h, c = state or self.zero_state(x)
        outputs = []
        for t, gates in enumerate(self._input_gates(x)):
            if continues is not None:
                h, c = h * continues[:, t, None], c * continues[:, t, None]
            i, f, g, o = (gates + self.recurrent(h)).chunk(4, dim=-1)  # (B, H) each
            new_c = _clip(f.sigmoid() * c + i.sigmoid() * g.tanh(), self.cell_clip)
            new_h = _clip(self.project(o.sigmoid() * new_c.tanh()), self.projection_clip)
            if mask is not None:
                alive = mask[:, t, None]
                new_h, new_c = torch.where(alive, new_h, h), torch.where(alive, new_c, c)
            h, c = new_h, new_c
            outputs.append(h)
        return torch.stack(outputs, dim=1), LSTMState(h, c)

    def _input_gates(self, x: Float[Tensor, "B T I"]) -> Iterator[Float[Tensor, "B G"]]:
        """Yield, token by token, the input's share of the gates.

        It needs no recurrence, so it is one product for many tokens; not for all, or a very long
        sentence would need memory for 4H values a token.
        """
        for some in x.split(max(1, _TOKENS_AT_ONCE // max(1, len(x))), dim=1):
            yield from self.input(some).unbind(dim=1)

    def zero_state(self, x: Float[Tensor, "B T I"]) -> LSTMState:
        """Return the state before the first token of a text."""
        return LSTMState(x.new_zeros(len(x), self.dim), x.new_zeros(len(x), self.cell_dim))


def _clip(x: Tensor, bound: float | None) -> Tensor:
    return x if bound is None else x.clamp(-bound, bound)
