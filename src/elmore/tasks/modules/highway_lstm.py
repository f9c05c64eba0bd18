"""A deep LSTM whose layers read a sentence by turns from the left and from the right.

After He et al. (2017), section 2.1. A layer's step, with x_t its input and h the step before:

g = tanh(W_g [x_t; h])                 i, f, o, r = sigmoid(W_. [x_t; h])
c_t = i * g + f * c_t-1                h_t = z * (r * o * tanh(c_t) + (1 - r) * W_x x_t)

r is the highway: how much of the layer is used, and how much is passed by. z is dropout, the same
at every step (Gal and Ghahramani, 2016).

T words, B sentences, I and H widths of input and output. Time comes first here, so that the words
of a step lie next to each other.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmore.tasks.modules.rnn import fits_one_kernel


class AlternatingLSTM(nn.Module):
    """Highway LSTMs on top of each other: the first reads from the left, the second back, ..."""

    def __init__(self, in_dim: int, hidden: int, *, num_layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [in_dim, *[hidden] * (num_layers - 1)]
        self.layers: Sequence[HighwayLSTM] = nn.ModuleList(
            HighwayLSTM(width, hidden, dropout) for width in widths
        )  # type: ignore[assignment]
        self.dim = hidden

    def forward(
        self, x: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T H"]:
        """Run over the words; padding changes nothing, and is zero in the result."""
        if fits_one_kernel(x, self.dim):
            lengths = mask.sum(dim=1)
            for number, layer in enumerate(self.layers):
                x = layer.in_one_kernel(x, lengths, back=number % 2 == 1)
            return x
        index = flip_index(mask)
        x = x.transpose(0, 1).contiguous()
        for layer in self.layers:
            # Padding comes last in either direction, so that no word ever sees it.
            x = flip(layer(x), index)
        if len(self.layers) % 2:
            x = flip(x, index)
        return x.transpose(0, 1) * mask[..., None]


class HighwayLSTM(nn.Module):
    """One layer, from the first step to the last."""

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

    def forward(self, x: Float[Tensor, "T B I"]) -> Float[Tensor, "T B H"]:
        """Run over the words."""
        return _Recurrence.apply(self.input(x), self.recurrent, self._keep(x, x.shape[1]))  # type: ignore[no-untyped-call]

    def in_one_kernel(
        self, x: Float[Tensor, "B T I"], lengths: Int[Tensor, " B"], *, back: bool
    ) -> Float[Tensor, "B T H"]:
        """Run over the words, or from the last one back; padding is zero in the result."""
        from elmore.tasks.modules.fused_rnn import HIGHWAY, FusedRNN

        H = self.recurrent.shape[1]
        from_input, passed = self.input(x)[:, :, None].split([5 * H, H], dim=-1)
        h = FusedRNN.apply(
            from_input,
            self.recurrent[None],
            None,
            passed,
            self._keep(x, len(x)),
            lengths,
            HIGHWAY.value,
            back,
        )  # type: ignore[no-untyped-call]
        return h[:, :, 0]

    def _keep(self, x: Tensor, B: int) -> Float[Tensor, "B H"] | None:
        if not self.training or not self.dropout:
            return None
        return functional.dropout(x.new_ones(B, self.recurrent.shape[1]), self.dropout)


class _Recurrence(torch.autograd.Function):
    """What is left of a layer once the input's products are there for all steps.

    T steps of a matrix product and eight small operations, and on the way back T of a product and
    three: what does not depend on the step after is computed for all steps at once, and so is the
    gradient of the weights. Autograd would take more than twice as many.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "T B 6*H"],
        weight: Float[Tensor, "5*H H"],
        keep: Float[Tensor, "B H"] | None,
    ) -> Float[Tensor, "T B H"]:
        T, B, _ = x.shape
        H = weight.shape[1]
        gates, cells, output = x.new_empty(T, B, 5 * H), x.new_empty(T, B, H), x.new_empty(T, B, H)
        from_input, passed = x.split([5 * H, H], dim=-1)
        h = c = x.new_zeros(B, H)
        back = weight.t()
        for x_t, passed_t, gates_t, c_t, h_t in zip(
            *(y.unbind() for y in (from_input, passed, gates, cells, output)), strict=True
        ):
            torch.addmm(x_t, h, back, out=gates_t)
            gates_t[:, :H].tanh_()
            gates_t[:, H:].sigmoid_()
            g, i, f, o, r = gates_t.chunk(5, dim=-1)
            c = torch.mul(f, c, out=c_t).addcmul_(i, g)
            h = torch.lerp(passed_t, c.tanh().mul_(o), r, out=h_t)
            if keep is not None:
                h.mul_(keep)
        ctx.save_for_backward(passed, weight, keep, gates, cells, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Float[Tensor, "T B H"]
    ) -> tuple[Float[Tensor, "T B 6*H"], Float[Tensor, "5*H H"], None]:
        passed, weight, keep, gates, cells, output = ctx.saved_tensors
        g, i, f, o, r = gates.chunk(5, dim=-1)
        B, H = f.shape[1:]
        bounded = cells.tanh()
        before = functional.pad(cells[:-1], (0, 0, 0, 0, 1, 0))  # c_t-1
        z = torch.ones_like(grad[0]) if keep is None else keep
        # Derivatives of c_t by the first three sums, then of h_t by the last three ...
        by_sum = torch.cat(
            [
                i * (1 - g * g),
                g * i * (1 - i),
                before * f * (1 - f),
                z * r * bounded * o * (1 - o),
                z * (o * bounded - passed) * r * (1 - r),
                z * (1 - r),
            ],
            dim=-1,
        )
        by_cell = z * r * o * (1 - bounded * bounded)
        # ... which become those of the loss, from the last step to the first.
        both = grad.new_zeros(2, B, H)
        dc, dh = both
        dh.copy_(grad[-1])
        for t in reversed(range(len(grad))):
            dc.addcmul_(dh, by_cell[t])
            x = by_sum[t]
            x.view(B, 2, 3, H).mul_(both.transpose(0, 1)[:, :, None])
            dc.mul_(f[t])
            if t:
                torch.addmm(grad[t - 1], x[:, : 5 * H], weight, out=dh)
        d_weight = by_sum[1:, :, : 5 * H].flatten(0, 1).t() @ output[:-1].flatten(0, 1)
        return by_sum, d_weight, None


def flip_index(mask: Bool[Tensor, "B T"]) -> Int[Tensor, "T B"]:
    """Return where each word of the reversed sentences comes from: 3 of 4 words -> 2 1 0 3."""
    t = torch.arange(mask.shape[1], device=mask.device)[:, None]
    last = mask.sum(dim=1) - 1
    return torch.where(t <= last, last - t, t)


def flip(x: Float[Tensor, "T B H"], index: Int[Tensor, "T B"]) -> Float[Tensor, "T B H"]:
    """Reverse each sentence and leave its padding where it is: [a b c _] -> [c b a _]."""
    return x.gather(0, index[..., None].expand_as(x))
