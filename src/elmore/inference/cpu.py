"""The CPU engine: the same layers, from weight matrices packed once for oneDNN or FBGEMM.

oneDNN multiplies in blocks. It cuts a plain matrix into blocks again for every product, and a
recurrent layer has a product per token, which is most of its time. A packed matrix is cut once.

Sentences are sorted by length, longest first, and their tokens stored by position. The sentences
that have not ended are then the first rows of every step, and no step computes padding:

    a b c        step 0  a d f
    d e          step 1  b e
    f            step 2  c

The first layer multiplies each distinct word of several steps once.

B sentences, N tokens of all sentences, V token vectors, D dim, H cell dim, G = 4H, J layers.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from elmore.bilm.model import BiLM, BiLMState
from elmore.inference.engine import Engine
from elmore.inference.packed import can_pack, int8_supported, pack_layers, pack_matrix
from elmore.inference.reference import encode_by_length

_SMALLEST = 2**16  # weights of a matrix, below which oneDNN's overhead exceeds the gain
_GATE_BYTES = 3 * 2**22  # of input gates at once: larger temporaries are slow to allocate


def worth_packing(bilm: BiLM) -> bool:
    """Return whether packed weights are faster: on a CPU, for large matrices."""
    weight = next(bilm.parameters())
    large = bilm.config.dim * bilm.config.cell_dim >= _SMALLEST
    return large and weight.device.type == "cpu" and can_pack(weight.dtype)


def int8_problem(device: torch.device) -> str | None:
    """Return why int8 can't run on a device, or None if it can."""
    if device.type == "cpu" and int8_supported():
        return None
    return f"int8 needs an x86 CPU, not {device}; try bf16"


class CpuEngine(Engine):
    """Packed matrices, in float32, bfloat16 or int8.

    int8 has one scale per row of a weight matrix and one per product for the activations. It is
    for the LSTMs alone: words are encoded in float32, each distinct one once.

    Args:
        bilm: The model, in float32 or bfloat16. It is taken apart, so that plain and packed
            weights are never in memory together.
        int8: Multiply the LSTM matrices in int8.
    """

    def __init__(self, bilm: BiLM, *, int8: bool = False) -> None:
        super().__init__(bilm.config, torch.device("cpu"), next(bilm.parameters()).dtype)
        self._encoder = bilm.encode
        pack_layers(self._encoder)
        self._forward = _pack_stack(bilm.forward_lstms, int8)
        self._backward = _pack_stack(bilm.backward_lstms, int8)

    def encode(self, ids: Int[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """See `Engine`."""
        return encode_by_length(self._encoder, ids, self.config)

    def run_with_state(
        self,
        table: Float[Tensor, "V D"],
        tokens: Int[np.ndarray, " N"],
        lengths: Int[np.ndarray, " B"],
        state: BiLMState | None = None,
    ) -> tuple[Float[Tensor, "J N 2*D"], BiLMState]:
        """See `Engine`."""
        L, B = self.config.num_layers, len(lengths)
        state = state or [lstm.zero_state(B) for lstm in (*self._forward, *self._backward)]
        order = np.argsort(-lengths, kind="stable")  # longest sentence first
        back = torch.from_numpy(np.argsort(order))
        before = [_reorder(of_layer, torch.from_numpy(order)) for of_layer in state]
        steps = _steps(lengths)
        x = table[torch.from_numpy(tokens)]
        layers = x.new_empty(L + 1, len(x), 2 * x.shape[1])
        torch.cat([x, x], dim=1, out=layers[0])
        after: BiLMState = []
        for d, stack in enumerate((self._forward, self._backward)):
            places = _by_position(lengths, order, steps, backward=bool(d))
            words = tokens[places].tolist()
            y = x[rows := torch.from_numpy(places)]
            half = slice(d * x.shape[1], (d + 1) * x.shape[1])
            for j, lstm in enumerate(stack):
                h, last = lstm(y, steps, before[d * L + j], range(len(words)) if j else words)
                y = h + y if self.config.residual and j > 0 else h
                layers[j + 1, :, half].index_copy_(0, rows, y)
                after.append(_reorder(last, back))
        return layers, after


def _pack_stack(lstms: nn.ModuleList, int8: bool) -> list["PackedLSTM"]:
    """Pack the layers of one direction, each taken out of the list to free it."""
    return [PackedLSTM(lstms.pop(0), int8=int8) for _ in range(len(lstms))]  # type: ignore[arg-type]


class PackedLSTM:
    """One layer of one direction. Its four gates are one matrix, so one call computes them."""

    def __init__(self, lstm: ProjectedLSTM, *, int8: bool = False) -> None:
        bias = _to_gates(lstm.input.bias)
        self._input = pack_matrix(_to_gates(lstm.input.weight), bias, int8=int8)
        self._recurrent = pack_matrix(_to_gates(lstm.recurrent.weight), None, int8=int8)
        self._project = (
            pack_matrix(2 * lstm.project.weight, None, int8=int8)
            if isinstance(lstm.project, nn.Linear)
            else None
        )
        self._cell_clip, self._projection_clip = lstm.cell_clip, lstm.projection_clip
        self._dim, self._cell_dim, self._dtype = lstm.dim, lstm.cell_dim, bias.dtype

    def zero_state(self, B: int) -> LSTMState:
        """Return the state before the first token of a text."""
        output = torch.zeros(B, self._dim, dtype=self._dtype)
        return LSTMState(output, torch.zeros(B, self._cell_dim, dtype=torch.float32))

    def __call__(
        self,
        x: Float[Tensor, "N D"],
        steps: Sequence[int],
        state: LSTMState,
        words: Sequence[int],
    ) -> tuple[Float[Tensor, "N D"], LSTMState]:
        """Run over tokens stored by position.

        Args:
            x: The input of each token.
            steps: The number of tokens at each position.
            state: The state of each sentence, longest sentence first.
            words: Word ids; inputs with equal ids are multiplied once.
        """
        h, cell = state.output, 2 * state.cell.float()
        output = torch.empty_like(x)
        last = torch.empty_like(h)
        for start, gates in self._input_gates(x, steps, words):
            n = len(gates)
            last[n : len(h)] = h[n:]  # sentences that have ended keep their state
            h = self._step(gates, h[:n], cell[:n])
            output[start : start + n] = h
            del gates  # before the next step allocates its own
        last[: len(h)] = h
        return output, LSTMState(last, cell / 2)

    def _step(
        self, gates: Float[Tensor, "n G"], h: Float[Tensor, "n D"], cell: Float[Tensor, "n H"]
    ) -> Float[Tensor, "n D"]:
        """Return the next output; update `cell`, which holds twice the cell, in place.

        tanh(x) = 2 (sigmoid(2x) - 1/2), to seven digits after the decimal point; PyTorch's tanh
        takes five times as long. The factors of two are exact and cost nothing where they are:
        `_to_gates` doubles g, `cell` is twice the cell, the projection twice its matrix.
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
        self, x: Float[Tensor, "N D"], steps: Sequence[int], words: Sequence[int]
    ) -> Iterator[tuple[int, Float[Tensor, "n G"]]]:
        """Yield, for each step, the index of its first token and W x + b of its tokens.

        This needs no recurrence, so it is one product for the distinct words of many steps. All
        steps at once would take 4H values per token, too much for a very long sentence.
        """
        max_distinct = max(1, _GATE_BYTES // (4 * self._cell_dim * x.element_size()))
        for starts, counts in _group_steps(steps, words, max_distinct):
            start, end = starts[0], starts[-1] + counts[-1]
            distinct, inverse = torch.tensor(words[start:end]).unique(return_inverse=True)
            if len(distinct) == end - start:
                yield from zip(starts, self._input(x[start:end]).split(counts), strict=True)
            else:
                distinct_inputs = x.new_empty(len(distinct), x.shape[1])
                distinct_inputs[inverse] = x[start:end]
                gates = self._input(distinct_inputs)
                for first, rows in zip(starts, inverse.split(counts), strict=True):
                    yield first, gates.index_select(0, rows)
                del gates


def _to_gates(rows: Float[Tensor, "G ..."]) -> Float[Tensor, "G ..."]:
    """Reorder the rows of the gates i, f, g, o to i, f, o, 2g."""
    i, f, g, o = rows.detach().chunk(4)
    return torch.cat([i, f, o, 2 * g])


def _steps(lengths: Int[np.ndarray, " B"]) -> list[int]:
    """Return how many sentences have a token at each position."""
    ended = np.bincount(lengths)  # by length
    return (len(lengths) - np.cumsum(ended))[:-1].tolist()


def _by_position(
    lengths: Int[np.ndarray, " B"],
    order: Int[np.ndarray, " B"],
    steps: Sequence[int],
    *,
    backward: bool,
) -> Int[np.ndarray, " N"]:
    """Return the places of all tokens, by position from the start or the end of a sentence."""
    first = (np.cumsum(lengths) - lengths)[order]
    lengths = lengths[order]
    places = [first[:n] + (lengths[:n] - 1 - t if backward else t) for t, n in enumerate(steps)]
    return np.concatenate([first[:0], *places])


def _group_steps(
    steps: Sequence[int], words: Sequence[int], max_distinct: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Group steps so that each group has up to `max_distinct` distinct words, or is a single step.

    Yields, for the steps of a group, the place of the first token and the number of tokens.
    """
    starts: list[int] = []
    counts: list[int] = []
    distinct: set[int] = set()
    start = 0
    for count in steps:
        of_step = set(words[start : start + count])
        if starts and len(distinct | of_step) > max_distinct:
            yield starts, counts
            starts, counts, distinct = [], [], set()
        starts.append(start)
        counts.append(count)
        distinct |= of_step
        start += count
    if starts:
        yield starts, counts


def _reorder(state: LSTMState, order: Int[Tensor, " B"]) -> LSTMState:
    return LSTMState(state.output[order], state.cell[order])
