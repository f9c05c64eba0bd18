"""A deep LSTM with highway connections whose layers alternate between both directions.

After He et al. (2017), section 2.1. One step of a layer, with input x_t and previous state h, c:

    g = tanh(W_g [x_t; h])                i, f, o, r = sigmoid(W [x_t; h])
    c_t = i * g + f * c                   h_t = z * (r * o * tanh(c_t) + (1 - r) * W_x x_t)

r is the transform gate of the highway, and z is a dropout mask that is the same at every step (Gal
and Ghahramani, 2016).

B sentences, T words, I and H widths of input and output.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.modules.rnn import fits_one_kernel
from elmore.transfer import to_device


class AlternatingLSTM(nn.Module):
    """A stack of highway LSTMs: the first reads left to right, the second right to left, ..."""

    def __init__(self, in_dim: int, hidden: int, *, num_layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [in_dim, *[hidden] * (num_layers - 1)]
        self.layers: Sequence[HighwayLSTM] = nn.ModuleList(
            HighwayLSTM(width, hidden, dropout) for width in widths
        )  # type: ignore[assignment]
        self.dim = hidden

    def forward(
        self, x: Float[Tensor, "B T I"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T H"]:
        """Return the output of the last layer, zero for padding; `lengths` are on the CPU."""
        lengths = to_device(lengths, x.device)
        for number, layer in enumerate(self.layers):
            x = layer(x, lengths, reverse=number % 2 == 1)
        return x


class HighwayLSTM(nn.Module):
    """One layer."""

    def __init__(self, in_dim: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.input = nn.Linear(in_dim, 6 * hidden)  # g i f o r, and W_x
        self.recurrent = nn.Parameter(torch.empty(5 * hidden, hidden))
        self.dropout = dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw orthonormal matrices (Saxe et al., 2013)."""
        for matrix in (*self.input.weight.chunk(6), *self.recurrent.chunk(5)):
            nn.init.orthogonal_(matrix)
        nn.init.zeros_(self.input.bias)
        nn.init.ones_(self.input.bias.chunk(6)[2])  # remember at first

    def forward(
        self, x: Float[Tensor, "B T I"], lengths: Int[Tensor, " B"], *, reverse: bool = False
    ) -> Float[Tensor, "B T H"]:
        """Return the output at every word, zero for padding; `lengths` are on x's device."""
        B, T, H = len(x), x.shape[1], self.recurrent.shape[1]
        gates, carry = self.input(x).split([5 * H, H], dim=-1)
        keep = functional.dropout(x.new_ones(B, H), self.dropout, self.training)
        if fits_one_kernel(x, H):
            from elmore.tasks.modules.fused_rnn import fused_rnn

            h = fused_rnn(
                "highway",
                gates[:, :, None],
                self.recurrent[None],
                lengths,
                carry=carry[:, :, None],
                keep=keep,
                reverse=reverse,
            )
            return h[:, :, 0]
        mask = torch.arange(T, device=x.device) < lengths[:, None]
        return highway_lstm(gates, carry, self.recurrent, keep, mask, reverse=reverse)


def highway_lstm(
    gates: Float[Tensor, "B T 5*H"],
    carry: Float[Tensor, "B T H"],
    weight: Float[Tensor, "5*H H"],
    keep: Float[Tensor, "B H"],
    mask: Bool[Tensor, "B T"],
    *,
    reverse: bool,
) -> Float[Tensor, "B T H"]:
    """Run the recurrence over `gates` and `carry`, the products of W and W_x with all x_t."""
    c = h = torch.zeros_like(keep)
    outputs = []
    steps = list(zip(gates.unbind(1), carry.unbind(1), mask[..., None].unbind(1), strict=True))
    for gates_t, carry_t, real in reversed(steps) if reverse else steps:
        g, i, f, o, r = torch.addmm(gates_t, h, weight.T).chunk(5, dim=-1)
        # In reverse, padding comes first, and the state must still be zero after it.
        c = real * (i.sigmoid() * g.tanh() + f.sigmoid() * c)
        h = real * keep * torch.lerp(carry_t, o.sigmoid() * c.tanh(), r.sigmoid())
        outputs.append(h)
    return torch.stack(outputs[::-1] if reverse else outputs, dim=1)
