"""Bidirectional recurrent layers over sentences of different lengths.

B sentences, T words, I and H widths of input and of each direction.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmore.bilm import kernels
from elmore.transfer import to_device

_MAX_WIDTH = 384  # cuDNN is faster for wider layers


def fits_one_kernel(x: Tensor, hidden: int) -> bool:
    """Return whether to run a recurrent layer as one kernel."""
    return kernels.usable(x) and x.dtype == torch.float32 and hidden <= _MAX_WIDTH


class _Bidirectional(nn.Module):
    """An RNN that reads in both directions."""

    def __init__(self, rnn: nn.LSTM | nn.GRU, *, num_gates: int) -> None:
        super().__init__()
        self.rnn = rnn
        self.dim = 2 * rnn.hidden_size
        for name, parameter in rnn.named_parameters():
            if "weight_hh" in name:
                for gate in parameter.chunk(num_gates):
                    nn.init.orthogonal_(gate)
            elif "bias" in name:
                nn.init.zeros_(parameter)

    def forward(
        self, x: Float[Tensor, "B T I"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T 2*H"]:
        """Return the outputs of both directions, zero for padding; `lengths` are on the CPU."""
        if fits_one_kernel(x, self.rnn.hidden_size):
            return self._in_one_kernel(x, to_device(lengths, x.device))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.rnn(packed)
        return pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0]

    def _in_one_kernel(
        self, x: Float[Tensor, "B T I"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T 2*H"]:
        """Return the output of `forward`, computed with one kernel per layer."""
        from elmore.tasks.modules.fused_rnn import Cell, fused_rnn

        rnn, H = self.rnn, self.rnn.hidden_size
        for layer in range(rnn.num_layers):
            if layer:
                x = functional.dropout(x, rnn.dropout, self.training)
            w_x, w_h, b_x, b_h = (
                torch.stack([getattr(rnn, f"{name}_l{layer}{end}") for end in ("", "_reverse")])
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )  # (2, gates * H, ...)
            bias = None
            if isinstance(rnn, nn.GRU):  # the reset gate scales the last part of the bias
                bias = b_h[:, 2 * H :]
                b_h = functional.pad(b_h[:, : 2 * H], (0, H))
            x = functional.linear(x, w_x.flatten(0, 1), (b_x + b_h).flatten())
            cell: Cell = "lstm" if bias is None else "gru"
            x = fused_rnn(cell, x.unflatten(-1, (2, -1)), w_h, lengths, bias=bias).flatten(2)
        return x


class BiLSTM(_Bidirectional):
    """A bidirectional LSTM with dropout between its layers."""

    def __init__(
        self, in_dim: int, hidden: int, *, num_layers: int = 1, dropout: float = 0.0
    ) -> None:
        between = dropout if num_layers > 1 else 0.0
        lstm = nn.LSTM(
            in_dim, hidden, num_layers, batch_first=True, bidirectional=True, dropout=between
        )
        super().__init__(lstm, num_gates=4)
        for name, parameter in lstm.named_parameters():
            if "bias_ih" in name:
                nn.init.ones_(parameter.chunk(4)[1])  # remember at first


class BiGRU(_Bidirectional):
    """A bidirectional GRU with one layer."""

    def __init__(self, in_dim: int, hidden: int) -> None:
        super().__init__(nn.GRU(in_dim, hidden, batch_first=True, bidirectional=True), num_gates=3)
