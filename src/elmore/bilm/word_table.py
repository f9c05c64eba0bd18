"""Words to token vectors, each distinct word encoded once as long as the table has room.

N words, D dim.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.bilm.model import BiLM
from elmore.bilm.packed import PackedBiLM
from elmore.bilm.streams import StreamedBiLM
from elmore.bilm.token_encoder import trim
from elmore.text.sentences import EncodeWords
from elmore.transfer import to_device

_WORDS = {"cpu": 32_768, "cuda": 131_072}  # a GPU is through with them four times as soon
_ENCODED_AT_ONCE = {
    "cpu": 128,
    "cuda": 4096,
}  # the filters need 8 kB a character at the paper's size


class WordTable:
    """A table of token vectors, and which word is in which row.

    When it is full it starts over: frequent words are back at once, and a hit costs one look-up,
    with no order of use to keep. Rows and vectors are good until the next call.

    Args:
        bilm: What encodes the words.
        encode: Words to ids.
        device: Where the biLM is.
    """

    def __init__(
        self, bilm: BiLM | PackedBiLM | StreamedBiLM, encode: EncodeWords, device: torch.device
    ) -> None:
        self.bilm = bilm
        self._encode = encode
        self._device = device
        self._rows = _Rows()
        self._size = _WORDS[device.type]
        self.vectors = self._room_for(self._size)

    @torch.inference_mode()
    def __call__(self, words: Sequence[str]) -> Int[np.ndarray, " N"]:
        """Return the row of each word."""
        rows = self._rows.of(words)
        if len(self._rows) > self._size:
            self._rows = _Rows()
            rows = self._rows.of(words)
            count = max(self._size, len(self._rows))  # these words alone may be more than the table
            if count != len(self.vectors):
                self.vectors = self._room_for(count)
        self._fill()
        return rows

    @property
    def has_grown(self) -> bool:
        """Whether it is larger than a table should be, for a call with very many words."""
        return len(self.vectors) > self._size

    def _fill(self) -> None:
        """Encode the words that have a row since the last time."""
        new = self._rows.take_new()
        first = len(self._rows) - len(new)
        # Words of like length together, so that few characters beyond the end of one are read.
        order = np.argsort(np.fromiter(map(len, new), np.int64, len(new)), kind="stable")
        for start in range(0, len(new), _ENCODED_AT_ONCE[self._device.type]):
            some = order[start : start + _ENCODED_AT_ONCE[self._device.type]]
            if self._device.type == "cuda":
                # Up to a power of two, with words twice: a GPU's library takes a millisecond to
                # find out how to multiply as many rows as it has never seen.
                some = np.resize(some, 1 << (len(some) - 1).bit_length())
            ids = self._encode([new[i] for i in some.tolist()])
            if self.bilm.config.vocab_size is None:
                ids = trim(ids, max(width for width, _ in self.bilm.config.filters))
            rows = to_device(first + some, self._device)
            self.vectors[rows] = self.bilm.encode(to_device(ids, self._device))

    def _room_for(self, count: int) -> Float[Tensor, "N D"]:
        return next(self.bilm.parameters()).new_empty(count, self.bilm.config.dim)


class _Rows(dict[str, int]):
    """The row of each word; a new word gets the next one as soon as it is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self._new: list[str] = []

    def of(self, words: Sequence[str]) -> Int[np.ndarray, " N"]:
        return np.fromiter(map(self.__getitem__, words), np.int64, len(words))

    def take_new(self) -> list[str]:
        """Return the words that have come since the last time, in the order of their rows."""
        new, self._new = self._new, []
        return new

    def __missing__(self, word: str) -> int:
        word = str.__str__(word)  # not one of a subclass, which may hold on to a whole document
        self[word] = row = len(self)
        self._new.append(word)
        return row
