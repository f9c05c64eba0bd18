"""Recurrent layers over sentences of different lengths.

B sentences, T words, N of them no padding, S steps, I and H widths of input and of each direction.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from elmore.bilm import kernels
from elmore.transfer import to_device

_WIDEST = 384
"""Above it, products are large enough for a kernel each, and cuDNN's are the better ones."""


def fits_one_kernel(x: Tensor, hidden: int) -> bool:
    """Tell whether a recurrent layer runs faster as one kernel."""
    return kernels.usable(x) and x.dtype == torch.float32 and hidden <= _WIDEST


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
        if fits_one_kernel(x, self.rnn.hidden_size):
            return self._in_one_kernel(x, to_device(lengths, x.device))
        B, T, _ = x.shape
        rows, batch_sizes = pack_rows(lengths, T)
        rows = to_device(rows, x.device)
        packed = PackedSequence(x.flatten(0, 1).index_select(0, rows), batch_sizes)
        output = self.rnn(packed)[0].data  # (words, 2H)
        padded = output.new_zeros(B * T, self.dim).index_copy(0, rows, output)
        return padded.unflatten(0, (B, T))

    def _in_one_kernel(
        self, x: Float[Tensor, "B T I"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T 2*H"]:
        """Do the same with one kernel a layer, where cuDNN has several a word."""
        from elmore.tasks.modules.fused_rnn import GRU, LSTM, FusedRNN

        rnn, H = self.rnn, self.rnn.hidden_size
        for layer in range(rnn.num_layers):
            if layer:
                x = functional.dropout(x, rnn.dropout, self.training)
            w_x, w_h, b_x, b_h = (
                torch.stack([getattr(rnn, f"{name}_l{layer}{end}") for end in ("", "_reverse")])
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )  # (2, gates * H, ...)
            in_gate = None
            if isinstance(rnn, nn.GRU):
                in_gate = b_h[:, 2 * H :]  # which the reset gate takes a share of
                b_h = functional.pad(b_h[:, : 2 * H], (0, H))
            x = functional.linear(x, w_x.flatten(0, 1), (b_x + b_h).flatten())
            cell = LSTM if in_gate is None else GRU
            x = FusedRNN.apply(
                x.unflatten(-1, (2, -1)), w_h, in_gate, None, None, lengths, cell.value, False
            )  # type: ignore[no-untyped-call]
            x = x.flatten(2)
        return x


def pack_rows(
    lengths: Int[Tensor, " B"], longest: int
) -> tuple[Int[Tensor, " N"], Int[Tensor, " S"]]:
    """Return the places of words as a packed sequence has them, and how many each step has.

    The first words of all sentences, the longest sentence first, then their second words, ...:
    of sentences of 1 and 3 words, padded to 4, that is 4 0 5 6, in steps of 2, 1 and 1. All on the
    CPU: PyTorch's own function would sort on the device and wait for the result, and copy the
    words of each length on their own.
    """
    order = lengths.argsort(descending=True, stable=True)
    step = torch.arange(int(lengths.max()))[:, None]
    going_on = step < lengths[order]  # (S, B)
    return (order * longest + step)[going_on], going_on.sum(dim=1)


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
