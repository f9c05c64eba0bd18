"""The CPU engine: the layers of the biLM, from weight matrices packed for oneDNN or FBGEMM.

oneDNN uses a blocked memory layout. It would reorder a plain matrix for every product, and a
recurrent layer has one product per step. A packed matrix is reordered once.

Tokens are stored as in a `PackedSequence`: sentences are sorted by length, longest first, and step
t is a slice with token t of each sentence that has one, so there is no padding:

    a b c        step 0  a d f
    d e          step 1  b e
    f            step 2  c

B sentences, N tokens of all sentences, V token vectors, D dim, H cell dim, G = 4H, J layers.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from elmore.bilm.model import BiLM, BiLMState
from elmore.inference.directions import run_directions
from elmore.inference.engine import Engine, TokenRows, without_autograd
from elmore.inference.packed import PackedInt8, PackedLinear, can_pack, pack_layers
from elmore.inference.reference import encode_by_length

_MIN_WEIGHTS = 2**16  # per matrix; below that, oneDNN's overhead exceeds the gain
_GATE_BYTES = 3 * 2**22  # of gates computed at once; larger temporaries are slow to allocate


def worth_packing(bilm: BiLM) -> bool:
    """Return whether packed weights are faster: on a CPU, for large matrices."""
    weight = next(bilm.parameters())
    large = bilm.config.dim * bilm.config.cell_dim >= _MIN_WEIGHTS
    return large and weight.device.type == "cpu" and can_pack(weight.dtype)


class CpuEngine(Engine):
    """Runs the biLM with packed matrices, in float32, bfloat16 or int8.

    int8 is dynamic quantization, with one scale per weight row and one for the activations of a
    product. Only the LSTMs use it; words are encoded in float32, each distinct one once.

    Args:
        bilm: The model, in float32 or bfloat16. It is taken apart, so that plain and packed
            weights are never in memory together.
        int8: Multiply the LSTM matrices in int8.
    """

    def __init__(self, bilm: BiLM, *, int8: bool = False) -> None:
        super().__init__(bilm)
        self._encoder = bilm.encode
        pack_layers(self._encoder)
        self._forward = _pack_stack(bilm.forward_lstms, int8)
        self._backward = _pack_stack(bilm.backward_lstms, int8)

    def encode(self, ids: Int[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """See `Engine`."""
        return encode_by_length(self._encoder, ids, self.config)

    def run_with_state(
        self, tokens: TokenRows, state: BiLMState | None = None
    ) -> tuple[Float[Tensor, "J N 2*D"], BiLMState]:
        """See `Engine`."""
        table, table_rows, lengths = tokens
        L, D, B = self.config.num_layers, self.config.dim, len(lengths)
        state = state or self.zero_state(B)
        by_length = np.argsort(-lengths, kind="stable")  # longest sentence first
        before = [_reorder(layer, torch.from_numpy(by_length)) for layer in state]
        inverse = torch.from_numpy(np.argsort(by_length))
        counts = (B - np.cumsum(np.bincount(lengths)))[:-1].tolist()  # tokens of each step
        rows = torch.from_numpy(table_rows)
        x = table[rows]
        layers = x.new_empty(L + 1, len(x), 2 * D)
        torch.cat([x, x], dim=1, out=layers[0])

        def run_direction(d: int) -> BiLMState:
            with without_autograd(self.device):  # its modes apply to one thread only
                by_step = _order_by_step(lengths, by_length, counts, backward=d == 1)
                y = x[by_step]
                after = []
                for j, lstm in enumerate(self._backward if d else self._forward):
                    # Equal words have equal inputs only in the first layer.
                    h, last = lstm(y, counts, before[d * L + j], None if j else rows[by_step])
                    y = h + y if self.config.residual and j > 0 else h
                    layers[j + 1, :, d * D : (d + 1) * D].index_copy_(0, by_step, y)
                    after.append(_reorder(last, inverse))
                return after

        forward, backward = run_directions(run_direction)
        return layers, forward + backward


def _pack_stack(lstms: nn.ModuleList, int8: bool) -> list["PackedLSTM"]:
    """Pack the layers of one direction, each taken out of the list to free it."""
    return [PackedLSTM(lstms.pop(0), int8=int8) for _ in range(len(lstms))]  # type: ignore[arg-type]


class PackedLSTM:
    """One layer of one direction. Its four gates are one matrix, so one call computes them."""

    def __init__(self, lstm: ProjectedLSTM, *, int8: bool = False) -> None:
        bias = _to_gates(lstm.input.bias)
        pack = PackedInt8 if int8 else PackedLinear
        self._input = pack(_to_gates(lstm.input.weight), bias)
        self._recurrent = pack(_to_gates(lstm.recurrent.weight), None)
        project = lstm.project
        self._project = pack(2 * project.weight, None) if isinstance(project, nn.Linear) else None
        self._cell_clip, self._projection_clip = lstm.cell_clip, lstm.projection_clip
        self._cell_dim = lstm.cell_dim

    def __call__(
        self,
        x: Float[Tensor, "N D"],
        counts: Sequence[int],
        state: LSTMState,
        rows: Int[Tensor, " N"] | None,
    ) -> tuple[Float[Tensor, "N D"], LSTMState]:
        """Return the output of each token, and the state after each sentence.

        Args:
            x: The input of each token, by step.
            counts: The number of tokens of each step.
            state: The state of each sentence, longest sentence first.
            rows: The table row of each token, to multiply equal inputs once; None after the first
                layer.
        """
        h, cell = state.output, 2 * state.cell.float()
        output, last = torch.empty_like(x), torch.empty_like(h)
        start = 0
        for gates in self._input_gates(x, counts, rows):
            n = len(gates)
            last[n : len(h)] = h[n:]  # of sentences that have ended
            h = self._step(gates, h[:n], cell[:n])
            output[start : start + n] = h
            start += n
        last[: len(h)] = h
        return output, LSTMState(last, cell / 2)

    def _step(
        self, gates: Float[Tensor, "n G"], h: Float[Tensor, "n D"], cell: Float[Tensor, "n H"]
    ) -> Float[Tensor, "n D"]:
        """Return the next output, and update `cell` in place; it holds 2c.

        tanh(x) = 2 sigmoid(2x) - 1, accurate to 1e-7; PyTorch's tanh takes five times as long. The
        factors of two are folded in: `_to_gates` doubles g, and the projection matrix is doubled.
        """
        # Products and their sum may be in bfloat16; cells accumulate in float32.
        i, f, o, g = gates.add_(self._recurrent(h)).float().sigmoid_().chunk(4, dim=1)
        cell.mul_(f).addcmul_(i, g.sub_(0.5), value=4)
        if self._cell_clip is not None:
            cell.clamp_(-2 * self._cell_clip, 2 * self._cell_clip)
        h = cell.sigmoid().sub_(0.5).mul_(o).to(h.dtype)
        h = 2 * h if self._project is None else self._project(h)
        if self._projection_clip is not None:
            h.clamp_(-self._projection_clip, self._projection_clip)
        return h

    def _input_gates(
        self, x: Float[Tensor, "N D"], counts: Sequence[int], rows: Int[Tensor, " N"] | None
    ) -> Iterator[Float[Tensor, "n G"]]:
        """Yield W x + b of the tokens of each step, computed for many steps at once."""
        max_tokens = _GATE_BYTES // (4 * self._cell_dim * x.element_size())
        if rows is None:
            for start, end, steps in _group_steps(counts, max_tokens):
                yield from self._input(x[start:end]).split(steps)
            return
        # Twice as many tokens, assuming that half of the words repeat.
        for start, end, steps in _group_steps(counts, 2 * max_tokens):
            distinct, inverse = rows[start:end].unique(return_inverse=True)
            inputs = x.new_empty(len(distinct), x.shape[1])
            inputs[inverse] = x[start:end]
            gates = self._input(inputs)
            for words in inverse.split(steps):
                yield gates.index_select(0, words)


def _to_gates(rows: Float[Tensor, "G ..."]) -> Float[Tensor, "G ..."]:
    """Reorder the rows of the gates i, f, g, o to i, f, o, 2g."""
    i, f, g, o = rows.detach().chunk(4)
    return torch.cat([i, f, o, 2 * g])


def _order_by_step(
    lengths: Int[np.ndarray, " B"],
    by_length: Int[np.ndarray, " B"],
    counts: Sequence[int],
    *,
    backward: bool,
) -> Int[Tensor, " N"]:
    """Return the indices of all tokens in the order in which a direction reads them."""
    first = (np.cumsum(lengths) - lengths)[by_length]
    lengths = lengths[by_length]
    steps = [first[:n] + (lengths[:n] - 1 - t if backward else t) for t, n in enumerate(counts)]
    return torch.from_numpy(np.concatenate([first[:0], *steps]))


def _group_steps(counts: Sequence[int], max_tokens: int) -> Iterator[tuple[int, int, list[int]]]:
    """Group consecutive steps of up to `max_tokens` tokens, at least one step per group.

    Yields the first token of a group, the end of its last one, and the counts of its steps.
    """
    start = end = 0
    group: list[int] = []
    for count in counts:
        if group and end + count - start > max_tokens:
            yield start, end, group
            start, group = end, []
        group.append(count)
        end += count
    if group:
        yield start, end, group


def _reorder(state: LSTMState, order: Int[Tensor, " B"]) -> LSTMState:
    return LSTMState(state.output[order], state.cell[order])
