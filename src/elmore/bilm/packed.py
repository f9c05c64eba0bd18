"""A biLM for inference on a CPU: the same layers, from weights that are laid out for it.

oneDNN multiplies in blocks. A plain matrix is cut into blocks anew for every product, and a
recurrent layer has a product for every token: that is most of its time. A packed one is cut once.

Sentences are sorted by length, the longest first, and their tokens stored by position. So the
sentences that still go on are the first rows of every step, and no step computes padding:

    a b c        step 0  a d f
    d e          step 1  b e
    f            step 2  c

B sentences, T tokens, N tokens of all sentences, V vectors, D dim, H cell dim, G = 4H, J layers.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.bilm.config import BiLMConfig
from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from elmore.bilm.model import BiLM, BiLMOutput, BiLMState
from elmore.bilm.products import Arithmetic, PackedConv, PackedFloat, can_pack, pack_matrix
from elmore.bilm.unfilled import unfilled

_SMALLEST = 2**16  # below this, a product takes less time than to find out how to do it
_BYTES_AT_ONCE = 3 * 2**22  # of the input's share of the gates; memory for more is slow to come by


def worth_packing(bilm: BiLM) -> bool:
    """Tell whether packed weights are of use: on a CPU, for large matrices."""
    large = bilm.config.dim * bilm.config.cell_dim >= _SMALLEST
    weight = next(bilm.parameters())
    fits = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
    return large and fits and can_pack()


class PackedBiLM(nn.Module):
    """A twin of a biLM that computes the same from packed copies of its matrices.

    Args:
        config: The sizes of the biLM.
        weights: Its state dict, in float32 or bfloat16. Each is taken out when it is packed: a
            caller who holds no other reference never has plain and packed ones in memory at once.
        arithmetic: `int8` multiplies the LSTMs' matrices, float32 here, in whole numbers: weights
            with a step for each row, activations with one for each product. A word is encoded
            but once, and so with all digits.
    """

    def __init__(
        self, config: BiLMConfig, weights: dict[str, Tensor], arithmetic: Arithmetic = "float"
    ) -> None:
        super().__init__()
        self.config = config
        self.dtype = next(iter(weights.values())).dtype
        with unfilled():
            plain = BiLM(config)
        self.encode = plain.encode
        _pack_encoder(self.encode, weights, "encode.")
        self.encode.load_state_dict(_take(weights, "encode."), assign=True)
        self.forward_lstms, self.backward_lstms = (
            nn.ModuleList(
                PackedLSTM(lstm, _take(weights, f"{name}.{j}."), arithmetic)
                for j, lstm in enumerate(getattr(plain, name))
            )
            for name in ("forward_lstms", "backward_lstms")
        )
        self.eval().requires_grad_(False)

    def unpack(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and weights of the biLM, bit for bit; whole numbers have lost theirs."""
        yield from self.named_parameters()
        for name, module in self.named_modules():
            if isinstance(module, PackedFloat):
                for part, value in zip(("weight", "bias"), module.unpack(), strict=True):
                    if value is not None:
                        yield f"{name}.{part}", _undo(name, value)

    def forward(
        self, ids: Int[Tensor, "B T *C"], mask: Bool[Tensor, "B T"], state: BiLMState | None = None
    ) -> BiLMOutput:
        """Do what `BiLM` does."""
        return self.contextualize(self.encode(ids), mask, state)

    def contextualize(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        state: BiLMState | None = None,
    ) -> BiLMOutput:
        """Run both directions over token vectors that are there already."""
        B, T, D = x.shape
        found, after = self._run(x[mask], mask.sum(dim=1), state or self._start(B))
        layers = x.new_zeros(B, len(found), T, 2 * D)
        layers.transpose(1, 2)[mask] = found.transpose(0, 1)
        return BiLMOutput(layers, after)

    def contextualize_words(
        self,
        vectors: Float[Tensor, "V D"],
        words: Int[Tensor, " N"],
        lengths: Int[Tensor, " B"],
        marks: Int[Tensor, " 2"],
    ) -> Float[Tensor, "J N 2*D"]:
        """Do what `BiLM` does.

        A direction comes to the mark at its end when it has read all words, and need not read it.
        The mark at its start is the same for all sentences, and is read once.
        """
        L, B = self.config.num_layers, len(lengths)
        first, last = vectors[marks].split(1)
        start = self._start(1)
        _, ahead = self._read(self.forward_lstms, first, [1], start[:L])
        _, behind = self._read(self.backward_lstms, last, [1], start[L:])
        state = [LSTMState(h.expand(B, -1), c.expand(B, -1)) for h, c in ahead + behind]
        return self._run(vectors[words], lengths, state, words)[0]

    def _start(self, B: int) -> BiLMState:
        return [lstm.start(B) for lstm in (*self.forward_lstms, *self.backward_lstms)]

    def _run(
        self,
        x: Float[Tensor, "N D"],
        lengths: Int[Tensor, " B"],
        state: BiLMState,
        words: Int[Tensor, " N"] | None = None,
    ) -> tuple[Float[Tensor, "J N 2*D"], BiLMState]:
        """Run both directions over the tokens of sentences, one sentence after the other.

        Tokens of one number in `words` have one vector, and the first layer multiplies it once.
        """
        N, D = x.shape
        L = self.config.num_layers
        order = lengths.argsort(descending=True)  # the longest sentence first
        back = order.argsort()
        steps = [int((lengths > t).sum()) for t in range(max(lengths.tolist(), default=0))]
        before = [_reorder(of_layer, order) for of_layer in state]
        layers = x.new_empty(L + 1, N, 2 * D)
        torch.cat([x, x], dim=1, out=layers[0])
        after: BiLMState = []
        for d, stack in enumerate((self.forward_lstms, self.backward_lstms)):
            rows = _by_position(lengths, order, steps, backward=bool(d))
            numbers = None if words is None else words[rows].tolist()
            outputs, last = self._read(stack, x[rows], steps, before[d * L :][:L], numbers)
            for j, y in enumerate(outputs, start=1):
                layers[j, :, d * D : (d + 1) * D].index_copy_(0, rows, y)
            after += [_reorder(of_layer, back) for of_layer in last]
        return layers, after

    def _read(
        self,
        stack: nn.ModuleList,
        y: Float[Tensor, "N D"],
        steps: Sequence[int],
        before: BiLMState,
        words: Sequence[int] | None = None,
    ) -> tuple[list[Float[Tensor, "N D"]], BiLMState]:
        """Run the layers of one direction over tokens stored by position."""
        outputs: list[Tensor] = []
        after: BiLMState = []
        for j, lstm in enumerate(stack):
            h, last = lstm(y, steps, before[j], None if j else words)
            y = h + y if self.config.residual and j > 0 else h
            outputs.append(y)
            after.append(last)
        return outputs, after


class PackedLSTM(nn.Module):
    """One layer of one direction; its gates lie side by side, so that they are one call."""

    def __init__(
        self, lstm: ProjectedLSTM, weights: dict[str, Tensor], arithmetic: Arithmetic
    ) -> None:
        super().__init__()
        bias = _to_gates(weights.pop("input.bias"))
        self.input = pack_matrix(_to_gates(weights.pop("input.weight")), bias, arithmetic)
        self.recurrent = pack_matrix(_to_gates(weights.pop("recurrent.weight")), None, arithmetic)
        self.project = (
            pack_matrix(2 * weights.pop("project.weight"), None, arithmetic)
            if isinstance(lstm.project, nn.Linear)
            else None
        )
        self.cell_clip, self.projection_clip = lstm.cell_clip, lstm.projection_clip
        self.dim, self.cell_dim, self.dtype = lstm.dim, lstm.cell_dim, bias.dtype

    def start(self, B: int) -> LSTMState:
        """Return the state of sentences that have not begun."""
        return LSTMState(torch.zeros(B, self.dim, dtype=self.dtype), torch.zeros(B, self.cell_dim))

    def forward(
        self,
        x: Float[Tensor, "N D"],
        steps: Sequence[int],
        state: LSTMState,
        words: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "N D"], LSTMState]:
        """Run over tokens stored by position, as many of them at each as `steps` says."""
        h, c = state.output, 2 * state.cell.float()
        output = torch.empty_like(x)
        last = torch.empty_like(h)
        for start, gates in self._input_gates(x, steps, words or range(len(x))):
            n = len(gates)
            if n < len(h):  # sentences that have ended keep their state
                last[n : len(h)] = h[n:]
            h = self._step(gates, h[:n], c[:n])
            output[start : start + n] = h
            del gates  # or it would be in memory beside those of the next steps
        last[: len(h)] = h
        return output, LSTMState(last, c / 2)

    def _step(
        self, gates: Float[Tensor, "n G"], h: Float[Tensor, "n D"], cell: Float[Tensor, "n H"]
    ) -> Float[Tensor, "n D"]:
        """Return what comes out after h; change the cell, which is given as twice its value.

        tanh(x) = 2 (sigmoid(2x) - 1/2), to seven digits after the point; PyTorch's own takes five
        times as long. Factors of two are exact, and have their place where they cost nothing:
        `_to_gates` has doubled g, `cell` is twice the cell and the projection twice its matrix.
        """
        # Half precision is for products; what is carried on is float32, and faster in it too.
        i, f, o, g = gates.add_(self.recurrent(h)).float().sigmoid_().chunk(4, dim=1)
        cell.mul_(f).addcmul_(i, g.sub_(0.5), value=4)
        if self.cell_clip is not None:
            cell.clamp_(-2 * self.cell_clip, 2 * self.cell_clip)
        h = cell.sigmoid().sub_(0.5).mul_(o).to(h.dtype)
        h = 2 * h if self.project is None else self.project(h)
        if self.projection_clip is not None:
            h.clamp_(-self.projection_clip, self.projection_clip)
        return h

    def _input_gates(
        self, x: Float[Tensor, "N D"], steps: Sequence[int], words: Sequence[int]
    ) -> Iterator[tuple[int, Float[Tensor, "n G"]]]:
        """Yield, step by step, where its tokens are and the input's share of their gates.

        It needs no recurrence, so it is one product for the distinct words of many steps; not of
        all, or a very long sentence would need memory for 4H values a token.
        """
        most = _BYTES_AT_ONCE // (4 * self.cell_dim * x.element_size())
        for starts, counts in _pieces(steps, words, most):
            start, end = starts[0], starts[-1] + counts[-1]
            distinct, place = torch.tensor(words[start:end]).unique(return_inverse=True)
            if len(distinct) == end - start:
                yield from zip(starts, self.input(x[start:end]).split(counts), strict=True)
            else:
                once = x.new_empty(len(distinct), x.shape[1])
                once[place] = x[start:end]
                gates = self.input(once)
                for first, rows in zip(starts, place.split(counts), strict=True):
                    yield first, gates.index_select(0, rows)
                del gates


def _pack_encoder(module: nn.Module, weights: dict[str, Tensor], prefix: str) -> None:
    """Put packed matrices and filters in the places of plain ones."""
    for name, child in module.named_children():
        here = f"{prefix}{name}."
        if isinstance(child, nn.Linear | nn.Conv1d):
            kind = PackedFloat if isinstance(child, nn.Linear) else PackedConv
            setattr(module, name, kind(weights.pop(f"{here}weight"), weights.pop(f"{here}bias")))
        else:
            _pack_encoder(child, weights, here)


def _take(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take out the weights of a part, under the names that they have in it."""
    names = [name for name in weights if name.startswith(prefix)]
    return {name.removeprefix(prefix): weights.pop(name) for name in names}


def _to_gates(rows: Float[Tensor, "G ..."]) -> Float[Tensor, "G ..."]:
    """Put the rows of the gates i, f, g, o into the order i, f, o, 2g."""
    i, f, g, o = rows.detach().chunk(4)
    return torch.cat([i, f, o, 2 * g])


def _undo(name: str, value: Tensor) -> Tensor:
    """Return a weight as it was before it was packed."""
    if name.startswith("encode."):
        return value
    if name.endswith(".project"):
        return value / 2
    i, f, o, g = value.chunk(4)
    return torch.cat([i, f, g / 2, o])


def _by_position(
    lengths: Int[Tensor, " B"], order: Int[Tensor, " B"], steps: Sequence[int], *, backward: bool
) -> Int[Tensor, " N"]:
    """Return the tokens position by position, from the start or from the end of a sentence."""
    first = (lengths.cumsum(0) - lengths)[order]
    lengths = lengths[order]
    rows = [first[:n] + (lengths[:n] - 1 - t if backward else t) for t, n in enumerate(steps)]
    return torch.cat([first[:0], *rows])


def _pieces(
    steps: Sequence[int], words: Sequence[int], most: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Group steps by `most` distinct words; yield where the tokens of each start, and how many."""
    starts: list[int] = []
    counts: list[int] = []
    distinct: set[int] = set()
    start = 0
    for count in steps:
        here = set(words[start : start + count])
        if starts and len(distinct) + len(here - distinct) > most:
            yield starts, counts
            starts, counts, distinct = [], [], set()
        starts.append(start)
        counts.append(count)
        distinct |= here
        start += count
    if starts:
        yield starts, counts


def _reorder(state: LSTMState, order: Int[Tensor, " B"]) -> LSTMState:
    return LSTMState(state.output[order], state.cell[order])
