"""Recurrent layers over sentences of different lengths.

B sentences, T words, I and H widths of input and of each direction.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class _Bidirectional(nn.Module):
    """An RNN in both directions that sees no padding, and returns zeros there."""

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
        """Run over the words in both directions; `lengths` are on the CPU."""
        # Sorted here, on the CPU: PyTorch would sort on the device and wait for the result.
        order = lengths.argsort(descending=True)
        there, back = (i.to(x.device, non_blocking=True) for i in (order, order.argsort()))
        packed = pack_padded_sequence(x[there], lengths[order], batch_first=True)
        output, _ = pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        return output[back]


class BiLSTM(_Bidirectional):
    """A bidirectional LSTM; dropout is between its layers."""

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
    """A bidirectional GRU of one layer."""

    def __init__(self, in_dim: int, hidden: int) -> None:
        super().__init__(nn.GRU(in_dim, hidden, batch_first=True, bidirectional=True), num_gates=3)
