"""Padded batches through an engine, with the contract of `BiLM.forward`.

B sentences, T tokens, W words, N tokens of all sentences, C characters, J layers, D dim.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from elmore.bilm.model import BiLMOutput, BiLMState, check_ids
from elmore.inference.batches import split
from elmore.inference.engine import Engine, without_autograd
from elmore.inference.long import run_batch
from elmore.inference.word_cache import WordCache, id_keys
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
            keys, lengths = id_keys(ids.cpu().numpy()[host_mask]), host_mask.sum(axis=1)
            layers, after = self.engine.run_with_state(self._words.look_up(keys, lengths), state)
            positions = to_device(np.flatnonzero(host_mask), device)
            padded = layers.new_zeros(B * T, len(layers), layers.shape[2])
            padded.index_copy_(0, positions, layers.transpose(0, 1))
            return BiLMOutput(padded.unflatten(0, (B, T)).transpose(1, 2), after)

    def start_state(self, boundaries: Int[Tensor, "2 ..."]) -> BiLMState:
        """Return the `start` of `run_words`, given the ids of `<S>` and `</S>`."""
        with without_autograd(self.engine.device):
            table, rows, _ = self._words.look_up(id_keys(boundaries.numpy()))
            return self.engine.start_state(table[rows.tolist()])

    def run_words(
        self,
        ids: Int[Tensor, "B W *C"],
        mask: Bool[Tensor, "B W"],
        start: BiLMState,
        *,
        max_words: int,
    ) -> Float[Tensor, "J N 2*D"]:
        """Return the layers of all words of a batch that has no boundary tokens.

        Splits large batches as `Embedder` does, so the layers are bit-equal to those of `embed`.

        Args:
            ids: Words of independent sentences.
            mask: Which of them are not padding; N in total.
            start: What `start_state` returns.
            max_words: Compute about this many words at once.
        """
        check_ids(ids, self.engine.config)
        self.engine.check_process()
        device, config = self.engine.device, self.engine.config
        with without_autograd(device):
            host_mask = mask.cpu().numpy()
            keys = id_keys(ids.cpu().numpy()[host_mask])
            ends = host_mask.sum(axis=1).cumsum().tolist()
            sentences = (keys[a:b] for a, b in pairwise([0, *ends]))
            layers = [
                run_batch(self.engine, self._words.look_up(*batch), start, lambda x: x)
                for batch in split(sentences, max_words)
            ]
            if len(layers) == 1:
                return layers[0]
            shape = (config.num_layers + 1, 0, 2 * config.dim)
            empty = torch.empty(shape, dtype=self.engine.dtype, device=device)
            return torch.cat([empty, *layers], dim=1)

    def _to_ids(self, keys: Sequence[bytes | int]) -> Int[Tensor, "N ..."]:
        if not self._reads_characters:
            return torch.tensor(keys)
        ids = np.frombuffer(b"".join(keys), dtype=np.uint16)  # type: ignore[arg-type]
        return torch.from_numpy(ids.reshape(len(keys), -1).astype(np.int64))
