"""Padded batches through an engine, with the contract of `BiLM.forward`.

B sentences, T tokens, N tokens of all sentences, C characters, J layers, D dim.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from elmore.bilm.model import BiLMOutput, BiLMState, check_ids
from elmore.inference.engine import Engine, without_autograd
from elmore.inference.word_cache import WordCache
from elmore.transfer import to_device


class PaddedRunner:
    """A frozen biLM that takes the ids and mask that `BiLM` takes, and returns what it returns.

    The tokens of a batch are looked up by their ids, so each distinct one is encoded once.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._reads_characters = engine.config.vocab_size is None
        self._words: WordCache[bytes | int] = WordCache(engine, self._to_ids)

    def __call__(
        self,
        ids: Int[Tensor, "B T *C"],
        mask: Bool[Tensor, "B T"],
        state: BiLMState | None = None,
    ) -> BiLMOutput:
        """Return all layers, zero at padding, and the state after each sentence."""
        check_ids(ids, self.engine.config)
        self.engine.check_process()
        (B, T), device = mask.shape, self.engine.device
        with without_autograd(device):
            host_mask = mask.cpu().numpy()
            table, table_rows = self._words.look_up(self._to_keys(ids.cpu().numpy()[host_mask]))
            lengths = host_mask.sum(axis=1, dtype=np.int64)
            layers, after = self.engine.run_with_state(table, table_rows, lengths, state)
            tokens = to_device(np.flatnonzero(host_mask), device)
            padded = layers.new_zeros(B * T, len(layers), layers.shape[2])
            padded.index_copy_(0, tokens, layers.transpose(0, 1))
            return BiLMOutput(padded.unflatten(0, (B, T)).transpose(1, 2), after)

    def _to_keys(self, ids: Int[np.ndarray, "N ..."]) -> Sequence[bytes | int]:
        """Return a hashable key for each token: its word id, or the bytes of its character ids."""
        if not self._reads_characters:
            return ids.tolist()
        rows = np.ascontiguousarray(ids, dtype=np.uint16)
        return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0].tolist()

    def _to_ids(self, keys: Sequence[bytes | int]) -> Int[Tensor, "N ..."]:
        if not self._reads_characters:
            return torch.tensor(keys)
        ids = np.frombuffer(b"".join(keys), dtype=np.uint16)  # type: ignore[arg-type]
        return torch.from_numpy(ids.reshape(len(keys), -1).astype(np.int64))
