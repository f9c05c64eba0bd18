"""Words to rows of a table of token vectors, each distinct word encoded once.

A token vector does not depend on context, so it is computed once and kept from call to call.

N words, V rows of the table, C characters, D dim.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import repeat
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.bilm.token_encoder import trim, word_ends
from elmore.inference.engine import Engine
from elmore.transfer import to_device

# A GPU goes through words so fast that a larger table pays.
_TABLE_ROWS = {"cpu": 32_768, "cuda": 131_072}
# The character filters take 8 kB per character at the paper's size.
_ENCODED_AT_ONCE = {"cpu": 128, "cuda": 4096}

Word = TypeVar("Word", bound=Hashable)


class Rows(NamedTuple):
    """Token vectors, and which of them are those of the words asked for."""

    table: Float[Tensor, "V D"]
    rows: Int[np.ndarray, " N"]


class WordCache(Generic[Word]):
    """Token vectors of the words seen so far, for several threads.

    A full table is replaced by an empty one: frequent words are back at once, and there is no
    order of use to keep. Rows that a caller holds stay valid, because a table is only ever added
    to.

    Args:
        engine: What encodes the words.
        encode: Words to ids.
    """

    def __init__(self, engine: Engine, encode: Callable[[Sequence[Word]], Tensor]) -> None:
        self._engine = engine
        self._encode = encode
        self._lock = Lock()
        self._max_rows = _TABLE_ROWS[engine.device.type]
        self.clear()

    def clear(self) -> None:
        """Forget all words."""
        with self._lock:
            self._rows: dict[Word, int] = {}
            self._table = self._empty_table(0)
            self._filled: torch.cuda.Event | None = None

    def look_up(self, words: Sequence[Word]) -> Rows:
        """Return the row of each word, encoding those that are new."""
        with self._lock:
            found = self._find(words)
            if len(missing := np.flatnonzero(found < 0)):
                self._add(list(dict.fromkeys(words[i] for i in missing.tolist())), words)
                found = self._find(words)
            if self._filled is not None:  # by another CUDA stream, perhaps
                torch.cuda.current_stream(self._engine.device).wait_event(self._filled)
            return Rows(self._table, found)

    def _find(self, words: Sequence[Word]) -> Int[np.ndarray, " N"]:
        """Return the row of each word, -1 for those that have none."""
        return np.fromiter(map(self._rows.get, words, repeat(-1)), np.int64, len(words))

    def _add(self, new: list[Word], words: Sequence[Word]) -> None:
        """Add new words, in a new table with all words of this call if the old one is full."""
        if len(self._rows) + len(new) > len(self._table):
            new = list(dict.fromkeys(words))
            self._rows = {}
            self._table = self._empty_table(max(self._max_rows, len(new)))
        first = len(self._rows)
        self._fill(new, first)
        self._rows.update(zip(new, range(first, first + len(new)), strict=True))

    def _fill(self, words: Sequence[Word], first: int) -> None:
        """Encode words into the rows from `first` on."""
        device = self._engine.device
        ids = self._encode(words)
        characters = self._engine.config.vocab_size is None
        # Words of similar length together, so that few characters of padding are read.
        order = word_ends(ids).argsort().numpy() if characters else np.arange(len(ids))
        at_once = _ENCODED_AT_ONCE[device.type]
        for start in range(0, len(order), at_once):
            batch = order[start : start + at_once]
            if device.type == "cuda":
                # Repeat words up to a power of two: cuBLAS takes a millisecond to choose an
                # algorithm for a number of rows that it has not seen.
                batch = np.resize(batch, 1 << (len(batch) - 1).bit_length())
            of_batch = ids[torch.from_numpy(batch)]
            if characters:
                of_batch = trim(of_batch, max(width for width, _ in self._engine.config.filters))
            rows = to_device(first + batch, device)
            self._table[rows] = self._engine.encode(to_device(of_batch, device))
        if device.type == "cuda":
            self._filled = torch.cuda.current_stream(device).record_event()

    def _empty_table(self, rows: int) -> Float[Tensor, "V D"]:
        engine = self._engine
        return torch.empty(rows, engine.config.dim, dtype=engine.dtype, device=engine.device)
