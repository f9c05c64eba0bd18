"""Recurrent layers over sentences of different lengths.

B sentences, T words, I and H widths of input and of each direction.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """A bidirectional LSTM that sees no padding, and returns zeros there."""

    def __init__(
        self, in_dim: int, hidden: int, *, num_layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            in_dim,
            hidden,
            num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.dim = 2 * hidden
        for name, parameter in self.lstm.named_parameters():
            if "weight_hh" in name:
                for gate in parameter.chunk(4):
                    nn.init.orthogonal_(gate)
            elif "bias_hh" in name:
                nn.init.zeros_(parameter)
            elif "bias_ih" in name:
                nn.init.zeros_(parameter)
                nn.init.ones_(parameter.chunk(4)[1])  # remember at first

    def forward(
        self, x: Float[Tensor, "B T I"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T 2*H"]:
        """Run over the words in both directions; `lengths` are on the CPU."""
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        return output
