"""A cache of context-independent token vectors: each distinct word is encoded once.

N words, V rows of the table, C characters, D dim.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from threading import Lock
from typing import Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.inference.engine import Engine, TokenRows
from elmore.transfer import to_device

_MAX_ROWS = 32_768
_MAX_ROWS_CUDA = 131_072

Word = TypeVar("Word", bound=Hashable)


class WordCache(Generic[Word]):
    """Token vectors of the words seen so far, for several threads.

    A full table is replaced by an empty one: frequent words are soon cached again, and no
    LRU order is needed. Rows that a caller holds stay valid, because a table is only ever added
    to. Words with equal ids share a row, for example those that are truncated to the same bytes:
    a cache of words and a cache of ids then encode the same rows together, with equal rounding.

    Args:
        engine: What encodes the words.
        encode: Words to ids.
    """

    def __init__(self, engine: Engine, encode: Callable[[Sequence[Word]], Tensor]) -> None:
        self._engine = engine
        self._encode = encode
        self._lock = Lock()
        self._max_rows = _MAX_ROWS_CUDA if engine.device.type == "cuda" else _MAX_ROWS
        self.clear()

    def clear(self) -> None:
        """Remove all words."""
        with self._lock:
            self._rows: dict[Word, int] = {}
            self._rows_of_ids: dict[bytes | int, int] = {}
            self._table = self._empty_table(0)
            self._filled: torch.cuda.Event | None = None

    def look_up(self, words: Sequence[Word], lengths: Iterable[int] | None = None) -> TokenRows:
        """Return the row of each word, encoding those that are new.

        `lengths` is the number of words of each sentence; by default, they are one sentence.
        """
        with self._lock:
            if self._filled is not None:  # possibly on another CUDA stream
                torch.cuda.current_stream(self._engine.device).wait_event(self._filled)
            rows = self._find(words)
            missing = np.flatnonzero(rows < 0).tolist()
            if missing:
                new = list(dict.fromkeys(words[i] for i in missing))
                if len(self._rows) + len(new) <= len(self._table):
                    self._add(new)
                    rows[missing] = [self._rows[words[i]] for i in missing]
                else:
                    self._replace_table(list(dict.fromkeys(words)))
                    rows = self._find(words)
            if self._table.is_cuda:  # or its memory could be reused while this stream reads it
                self._table.record_stream(torch.cuda.current_stream(self._engine.device))
            return TokenRows(
                self._table,
                rows,
                np.fromiter([len(words)] if lengths is None else lengths, np.int64),
            )

    def _find(self, words: Sequence[Word]) -> Int[np.ndarray, " N"]:
        """Return the row of each word, -1 for those that have none."""
        return np.fromiter(map(self._rows.get, words, repeat(-1)), np.int64, len(words))

    def _replace_table(self, words: list[Word]) -> None:
        """Start a new table with the words of a call, which may be more than usual."""
        self._rows, self._rows_of_ids = {}, {}
        self._table = self._empty_table(max(self._max_rows, len(words)))
        self._add(words)

    def _add(self, new: list[Word]) -> None:
        device, ids = self._engine.device, self._encode(new)
        keys, rows = id_keys(ids.numpy()), self._rows_of_ids
        index = dict(zip(keys, range(len(keys)), strict=True))
        missing = [key for key in index if key not in rows]
        if missing:
            vectors = self._engine.encode(to_device(ids[[*map(index.get, missing)]], device))
            first, end = len(rows), len(rows) + len(missing)
            self._table[first:end] = vectors
            if device.type == "cuda":
                self._filled = torch.cuda.current_stream(device).record_event()
            rows.update(zip(missing, range(first, end), strict=True))
        self._rows.update(zip(new, map(rows.__getitem__, keys), strict=True))

    def _empty_table(self, rows: int) -> Float[Tensor, "V D"]:
        engine = self._engine
        return torch.empty(rows, engine.config.dim, dtype=engine.dtype, device=engine.device)


def id_keys(ids: Int[np.ndarray, "N ..."]) -> Sequence[bytes | int]:
    """Return a hashable key for each token: its word id, or the bytes of its character ids."""
    if ids.ndim == 1:
        return ids.tolist()
    rows = np.ascontiguousarray(ids, dtype=np.uint16)
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0].tolist()
