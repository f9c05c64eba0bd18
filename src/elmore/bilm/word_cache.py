"""Words to token vectors, x_k, each word encoded once.

N words, d dim.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.bilm.model import BiLM
from elmore.bilm.packed import PackedBiLM
from elmore.bilm.token_encoder import trim
from elmore.text.sentences import EncodeWords

_CACHED_WORDS = 32_768
_ENCODED_AT_ONCE = {
    "cpu": 128,
    "cuda": 4096,
}  # the filters need 8 kB a character at the paper's size


class WordCache:
    """Token vectors, each distinct word encoded once as long as the table has room.

    When the table is full it starts over: frequent words are back at once, and a hit costs
    one look-up, with no order of use to keep.
    """

    def __init__(self, bilm: BiLM | PackedBiLM, encode: EncodeWords, device: torch.device) -> None:
        self.bilm = bilm
        self._encode = encode
        self._device = device
        self._row: dict[str, int] = {}
        self._table = self._room_for(_CACHED_WORDS)

    @torch.inference_mode()
    def __call__(self, words: Sequence[str]) -> Float[Tensor, "N d"]:
        """Return the vectors of words."""
        distinct = dict.fromkeys(words)
        if len(self._row.keys() | distinct.keys()) > _CACHED_WORDS:
            self._row.clear()
        new = [word for word in distinct if word not in self._row]
        if new:
            self._add(new)
        return self._table[torch.tensor([self._row[word] for word in words], device=self._device)]

    def _add(self, words: list[str]) -> None:
        if len(words) > len(self._table):  # one batch alone has more words than the table
            self._table = self._room_for(len(words))
        # Words of like length together, so that few characters beyond the end of one are read.
        for some in _chunks(sorted(words, key=len), _ENCODED_AT_ONCE[self._device.type]):
            rows = range(len(self._row), len(self._row) + len(some))
            ids = self._encode(some)
            if self.bilm.config.vocab_size is None:
                ids = trim(ids, max(width for width, _ in self.bilm.config.filters))
            self._table[rows.start : rows.stop] = self.bilm.encode(ids.to(self._device))
            self._row |= zip(some, rows, strict=True)

    def _room_for(self, count: int) -> Float[Tensor, "N d"]:
        return next(self.bilm.parameters()).new_empty(count, self.bilm.config.dim)


def _chunks(words: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(words), size):
        yield words[start : start + size]
