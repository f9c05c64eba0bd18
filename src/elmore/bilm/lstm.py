"""The recurrent layer: an LSTM with a projection, and clipping of its cell state and output.

B rows of the batch, T tokens, I input dim, D output dim, H cell dim, G = 4H gates.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

_TOKENS_AT_ONCE = 4096  # limits the memory for gates, 4H values per token


class LSTMState(NamedTuple):
    """The recurrent state of an LSTM: its hidden output and its cell state."""

    output: Float[Tensor, "B D"]
    cell: Float[Tensor, "B H"]


class ProjectedLSTM(nn.Module):
    """LSTM whose H-dimensional hidden output is projected to D dimensions (Sak et al., 2014).

    Stateless: the LSTM state is passed in and returned.
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
        # As in TensorFlow, only a projected output is clipped. Without a projection, |h| < 1.
        self.projection_clip = projection_clip if project else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as the released training code does: Glorot uniform, forget bias 1."""
        # TensorFlow has one matrix for [x; h], whose size determines Glorot's bound.
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
        keep_state: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        """Return the outputs of all tokens, and the state after the last token of each row.

        Args:
            x: The input vectors.
            mask: False at padding, where the state does not change. None if there is no padding.
            state: The initial state; None for zeros.
            keep_state: False where the state is reset to zeros before the token, because a new
                sentence starts there. None to keep it everywhere.
        """
        h, c = state or self.zero_state(x)
        outputs = []
        for t, gates in enumerate(self._input_gates(x)):
            if keep_state is not None:
                h, c = h * keep_state[:, t, None], c * keep_state[:, t, None]
            i, f, g, o = (gates + self.recurrent(h)).chunk(4, dim=-1)  # (B, H) each
            new_c = _clip(f.sigmoid() * c + i.sigmoid() * g.tanh(), self.cell_clip)
            new_h = _clip(self.project(o.sigmoid() * new_c.tanh()), self.projection_clip)
            if mask is not None:
                is_token = mask[:, t, None]
                new_h, new_c = torch.where(is_token, new_h, h), torch.where(is_token, new_c, c)
            h, c = new_h, new_c
            outputs.append(h)
        return torch.stack(outputs, dim=1), LSTMState(h, c)

    def _input_gates(self, x: Float[Tensor, "B T I"]) -> Iterator[Float[Tensor, "B G"]]:
        """Yield W x + b for each position, before the recurrent term is added.

        This does not depend on the state, so one matrix product computes it for many positions.
        """
        for chunk in x.split(max(1, _TOKENS_AT_ONCE // max(1, len(x))), dim=1):
            yield from self.input(chunk).unbind(dim=1)

    def zero_state(self, x: Float[Tensor, "B T I"]) -> LSTMState:
        """Return the initial state."""
        return LSTMState(x.new_zeros(len(x), self.dim), x.new_zeros(len(x), self.cell_dim))


def _clip(x: Tensor, bound: float | None) -> Tensor:
    return x if bound is None else x.clamp(-bound, bound)
