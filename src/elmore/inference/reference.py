"""The plain PyTorch engine: sentences padded to one length, run by the biLM itself.

It runs everywhere, and the other engines are tested against it.

B sentences, N tokens of all sentences, V token vectors, T tokens, D dim, J layers.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmore.bilm.config import BiLMConfig
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.token_encoder import word_ends
from elmore.inference.engine import Engine, TokenRows
from elmore.text.sentences import group_by_length
from elmore.transfer import to_device

_ENCODED_AT_ONCE = 128  # words; the paper's 2048 filters take 8 kB per character


def encode_by_length(
    encode: Callable[[Tensor], Tensor], ids: Int[Tensor, "N ..."], config: BiLMConfig
) -> Float[Tensor, "N D"]:
    """Encode words of similar length together, with little padding and in little memory."""
    if config.vocab_size is not None or not len(ids):
        return encode(ids)
    ends, order = word_ends(ids).sort()
    widest = max(width for width, _ in config.filters)
    parts = zip(order.split(_ENCODED_AT_ONCE), ends.split(_ENCODED_AT_ONCE), strict=True)
    vectors = [encode(ids[words, : int(end[-1]) + widest]) for words, end in parts]
    return torch.cat(vectors)[order.argsort()]


class ReferenceEngine(Engine):
    """Runs the plain biLM."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__(bilm)
        self._bilm = bilm
        self.cell_dtype = self.dtype

    def encode(self, ids: Int[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """See `Engine`."""
        return encode_by_length(self._bilm.encode, ids, self.config)

    def run_with_state(
        self, tokens: TokenRows, state: BiLMState | None = None
    ) -> tuple[Float[Tensor, "J N 2*D"], BiLMState]:
        """See `Engine`."""
        table, table_rows, lengths = tokens
        N = len(table_rows)
        layers = table.new_empty(self.config.num_layers + 1, N, 2 * self.config.dim)
        state = state or self.zero_state(len(lengths))
        after = [LSTMState(h.clone(), c.clone()) for h, c in state]
        ends = np.cumsum(lengths)
        # Group sentences of similar length: less padding, and up to 2 N padded tokens at once.
        for group in group_by_length(lengths.tolist(), 2 * N):
            if not lengths[group].any():
                continue
            sentences = [torch.arange(ends[i] - lengths[i], ends[i]) for i in group]
            rows = pad_sequence(
                [torch.from_numpy(table_rows)[s] for s in sentences], batch_first=True
            )
            mask = torch.arange(rows.shape[1]) < torch.tensor(lengths[group])[:, None]  # (B, T)
            x = table[to_device(rows, self.device)]  # (B, T, D)
            mask, positions, in_group = (
                to_device(i, self.device) for i in (mask, torch.cat(sentences), torch.tensor(group))
            )
            before = [LSTMState(h[in_group], c[in_group]) for h, c in state]
            output = self._bilm.contextualize(x, mask, before)
            layers[:, positions] = output.layers.transpose(0, 1)[:, mask]
            for (h, c), (new_h, new_c) in zip(after, output.state, strict=True):
                h[in_group], c[in_group] = new_h, new_c
        return layers, after
