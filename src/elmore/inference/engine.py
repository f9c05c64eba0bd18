"""The contract of all engines: token vectors in, layers out.

An engine sorts, pads or packs the sentences of a batch as it needs.

B sentences, N tokens of all sentences, V token vectors, D dim, J = L + 1 layers.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.errors import InputError

# GNU OpenMP's threads do not survive a fork. With more than one thread, the first parallel region
# in the child would wait for them forever.
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class TokenRows(NamedTuple):
    """A batch of sentences, one after another."""

    table: Float[Tensor, "V D"]
    """Token vectors."""

    rows: Int[np.ndarray, " N"]
    """The table row of each token."""

    lengths: Int[np.ndarray, " B"]
    """The number of tokens of each sentence."""


class Engine(ABC):
    """A frozen biLM. Thread-safe.

    Attributes:
        config: The sizes of the biLM.
        device: Where its weights, and the tensors that it takes and returns, are.
        dtype: The dtype of token vectors and layers.
        cell_dtype: The dtype of cell states.
    """

    def __init__(self, bilm: BiLM) -> None:
        weight = next(bilm.parameters())
        self.config, self.device, self.dtype = bilm.config, weight.device, weight.dtype
        self.cell_dtype = torch.float32
        self._pid = os.getpid()

    @abstractmethod
    def encode(self, ids: Int[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """Return the token vector x_k of each word."""

    @abstractmethod
    def run_with_state(
        self, tokens: TokenRows, state: BiLMState | None = None
    ) -> tuple[Float[Tensor, "J N 2*D"], BiLMState]:
        """Return the layers of all tokens, and the state after the last token of each sentence.

        Args:
            tokens: The sentences, with boundary tokens unless `state` is the state after them.
            state: The state before the first token of each sentence; None for zeros.
        """

    def run(self, tokens: TokenRows, start: BiLMState) -> Float[Tensor, "J N 2*D"]:
        """Return the layers of the words of independent sentences, without boundary tokens.

        Each direction starts from `start`, the state after its first boundary token: `<S>` for the
        forward LSTMs, `</S>` for the backward LSTMs. Its last boundary token affects no word.

        Args:
            tokens: The words of the sentences.
            start: What `start_state` returns.
        """
        B = len(tokens.lengths)
        state = [LSTMState(h.expand(B, -1), c.expand(B, -1)) for h, c in start]
        return self.run_with_state(tokens, state)[0]

    def zero_state(self, B: int) -> BiLMState:
        """Return the state before the first token of B sentences."""
        output = torch.zeros(B, self.config.dim, dtype=self.dtype, device=self.device)
        cell = torch.zeros(B, self.config.cell_dim, dtype=self.cell_dtype, device=self.device)
        return [LSTMState(output, cell)] * (2 * self.config.num_layers)

    def start_state(self, boundaries: Float[Tensor, "2 D"]) -> BiLMState:
        """Return the state of the forward LSTMs after `<S>` and of the backward LSTMs after `</S>`.

        All sentences start from it, so it has a single row.

        Args:
            boundaries: The token vectors of `<S>` and `</S>`.
        """
        _, state = self.run_with_state(TokenRows(boundaries, np.arange(2), np.ones(2, np.int64)))
        L = self.config.num_layers
        forward = [LSTMState(h[:1], c[:1]) for h, c in state[:L]]
        backward = [LSTMState(h[1:], c[1:]) for h, c in state[L:]]
        if self.device.type == "cuda":  # other threads may read it on their own CUDA streams
            torch.cuda.current_stream(self.device).synchronize()
        return forward + backward

    def free(self) -> None:
        """Free memory that the next call allocates again."""
        return  # only captured CUDA graphs have such memory

    def check_process(self) -> None:
        """Raise if the engine is on a GPU and was made before this process was forked."""
        if self.device.type == "cuda" and self._pid != os.getpid():
            raise InputError(
                "a CUDA model can't be used in a forked process; load it there, or start workers "
                "with the spawn method"
            )


@contextmanager
def without_autograd(device: torch.device) -> Iterator[None]:
    """Disable autograd, inference mode and autocast, whatever the caller has enabled.

    Results are normal tensors, which autograd can use afterwards.
    """
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield
