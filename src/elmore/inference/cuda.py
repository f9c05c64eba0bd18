"""The CUDA engine: Triton kernels, captured as one CUDA graph per shape of a batch.

`layout.py` assigns sentences to batch rows. `waves.py` runs all layers of both directions at once.

B sentences, N tokens of all sentences, V token vectors, D dim, J layers, L LSTM layers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from elmore.bilm.kernels.characters import encode
from elmore.bilm.kernels.graphs import CapturedFunction
from elmore.bilm.lstm import LSTMState, ProjectedLSTM
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.token_encoder import CharEncoder, word_ends
from elmore.inference.engine import Engine, TokenRows
from elmore.inference.layout import Layout, align, pack
from elmore.inference.waves import Waves
from elmore.transfer import to_device

_ENCODED_AT_ONCE = 4096  # words
_MAX_CAPTURED_STEPS = 1024  # capturing takes time and memory for each step


class CudaEngine(Engine):
    """All layers of both directions as one batch of matrices, replayed from CUDA graphs.

    Args:
        bilm: The model, on a CUDA device; its LSTMs must have a projection.
    """

    def __init__(self, bilm: BiLM) -> None:
        super().__init__(bilm)
        self._encoder = bilm.encode
        pairs = zip(bilm.forward_lstms, bilm.backward_lstms, strict=True)
        lstms = cast("list[tuple[ProjectedLSTM, ProjectedLSTM]]", list(pairs))
        self._waves = Waves(lstms, residual=bilm.config.residual)
        self._captured = CapturedFunction(self._waves)
        self._lock = Lock()
        self._last_run: torch.cuda.Event | None = None

    def encode(self, ids: Int[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """See `Engine`."""
        if not isinstance(self._encoder, CharEncoder):
            return self._encoder(ids)
        vectors = torch.empty(len(ids), self.config.dim, dtype=self.dtype, device=self.device)
        # Words of similar length together: a tile of the kernel reads up to its longest word.
        order = word_ends(ids).argsort()
        with torch.cuda.device_of(ids):  # Triton launches on the current device
            for words in order.split(_ENCODED_AT_ONCE):
                # Fill up to a power of two: cuBLAS takes a millisecond to choose an algorithm
                # for a number of rows that it has not seen.
                padding = (1 << (len(words) - 1).bit_length()) - len(words)
                padded = functional.pad(ids[words], (0, 0, 0, padding))
                vectors[words] = encode(self._encoder, padded)[: len(words)]
        return vectors

    def run(self, tokens: TokenRows, start: BiLMState) -> Float[Tensor, "J N 2*D"]:
        """See `Engine`."""
        return self._run(tokens, pack(tokens.lengths), self._stack(start))[0]

    def run_with_state(
        self, tokens: TokenRows, state: BiLMState | None = None
    ) -> tuple[Float[Tensor, "J N 2*D"], BiLMState]:
        """See `Engine`."""
        lengths, B = tokens.lengths, len(tokens.lengths)
        layout = align(lengths)
        padding = layout.starts.shape[2] - B  # rows without a sentence
        before = self._stack(state or self.zero_state(B))
        padded = LSTMState(*(functional.pad(one, (0, 0, 0, padding)) for one in before))
        layers, after = self._run(tokens, layout, padded)
        # A sentence without tokens keeps its state.
        empty = to_device(lengths == 0, self.device)[:, None]
        kept = (torch.where(empty, a, b[:, :B]) for a, b in zip(before, after, strict=True))
        return layers, self._unstack(LSTMState(*kept))

    def free(self) -> None:
        """Drop the captured graphs and their memory."""
        with self._lock:
            self._captured = CapturedFunction(self._waves)

    def _run(
        self, tokens: TokenRows, layout: Layout, start: LSTMState
    ) -> tuple[Float[Tensor, "J N 2*D"], LSTMState]:
        """Return the layers of the tokens, and the state after the last step."""
        x = tokens.table[to_device(tokens.rows, self.device)]
        L, (N, D) = self.config.num_layers, x.shape
        step, row, starts = (to_device(array, self.device) for array in layout)
        inputs = x.new_zeros(*starts.shape, D)  # (T, 2, B, D)
        for d in range(2):
            inputs[step[d], d, row] = x
        layers = x.new_empty(L + 1, N, 2 * D)
        layers[0] = x.repeat(1, 2)
        # The next replay of a graph overwrites its results, so they are copied out here.
        with self._exclusive():
            run = self._captured if len(inputs) <= _MAX_CAPTURED_STEPS else self._waves
            *outputs, output, cell = run(inputs, starts, *start)
            for layer, h in zip(layers[1:], outputs, strict=True):
                layer[:, :D] = h[step[0], 0, row]
                layer[:, D:] = h[step[1], 1, row]
            return layers, LSTMState(output.clone(), cell.clone())

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep other threads, and work on other CUDA streams, out of the captured graphs."""
        with self._lock, torch.cuda.device(self.device):
            if self._last_run is not None:
                torch.cuda.current_stream().wait_event(self._last_run)
            try:
                yield
            finally:
                self._last_run = torch.cuda.current_stream().record_event()

    def _stack(self, state: BiLMState) -> LSTMState:
        """Return the states of all LSTMs as one, (2L, B, ...), in the order of `Waves`."""
        L = self.config.num_layers
        ordered = [state[d * L + j] for j in range(L) for d in range(2)]
        return LSTMState(*(torch.stack(tensors) for tensors in zip(*ordered, strict=True)))

    def _unstack(self, state: LSTMState) -> BiLMState:
        states = [LSTMState(h, c) for h, c in zip(*state, strict=True)]
        return states[::2] + states[1::2]
