"""A cache of the biLM's layers for all sentences of a task.

The biLM is frozen, so a sentence has the same layers in every epoch. They are computed once and
kept in float16, one row per word: on the GPU if they fit, otherwise in a memory-mapped file.

B texts, J layers, T words, D dim; N words in the cache.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import IO

import numpy as np
import torch
from jaxtyping import Float, Float16
from torch import Tensor

from elmore.errors import InputError
from elmore.tasks.encoder import Encoder
from elmore.text.sentences import Sentence
from elmore.transfer import to_device

_MAX_SHARE_OF_GPU = 0.5
"""The part of a GPU's free memory that the cache may take."""

_SENTENCES_PER_COPY = 256

Text = Sequence[Sentence]
"""Sentences in their order. The biLM embeds each of them independently (section 3.4)."""

Watch = Callable[[Iterator[Sentence], int], Iterator[Sentence]]
"""Wraps an iterator over sentences, given their number; for a progress bar, for example."""


def _reserve(file: IO[bytes], size: int) -> None:
    """Reserve disk space for a file: on a full disk, writing to mapped memory raises SIGBUS.

    Raises:
        InputError: If the disk is too small.
    """
    folder = tempfile.gettempdir()
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        elif shutil.disk_usage(folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise InputError(
            f"the biLM's layers of all sentences take {size / 1e6:,.1f} MB, which do not fit into "
            f"{folder} ({error.strerror}); set TMPDIR to a folder on a larger disk"
        ) from error


class LayerCache:
    """Returns the biLM's layers of texts: cached ones, or computed on the spot."""

    def __init__(self, embedder: Encoder) -> None:
        self.embedder = embedder
        self._first_row: dict[tuple[str, ...], int] = {}
        """The row of each cached sentence's first word; the other words follow it."""
        self._table: Float16[Tensor, "N J D"] = torch.zeros(
            1, embedder.num_layers, embedder.dim, dtype=torch.float16
        )

    def prepare(
        self, sentences: Iterable[Sentence], watch: Watch = lambda sentences, _: sentences
    ) -> None:
        """Compute and cache the layers of all distinct sentences."""
        distinct = list(dict.fromkeys(tuple(words) for words in sentences if words))
        self._table = self._new_table(sum(map(len, distinct)))
        for _ in watch(self._fill(distinct), len(distinct)):
            pass
        self.embedder.free()  # leaves the memory to the task's model

    def _new_table(self, num_words: int) -> Float16[Tensor, "N J D"]:
        shape = (max(num_words, 1), self.embedder.num_layers, self.embedder.dim)
        size, device = 2 * np.prod(shape, dtype=int).item(), self.embedder.device
        if device.type == "cuda" and size < _MAX_SHARE_OF_GPU * torch.cuda.mem_get_info(device)[0]:
            return torch.empty(shape, dtype=torch.float16, device=device)
        # The file may be larger than memory. It has no name and is deleted with the mapping.
        with tempfile.TemporaryFile() as file:
            _reserve(file, size)
            return torch.from_numpy(np.memmap(file, np.float16, "r+", shape=shape))

    def _fill(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        start = 0
        embedded = self.embedder.stream(sentences, dtype="float16")
        while batch := list(islice(embedded, _SENTENCES_PER_COPY)):
            vectors = np.concatenate([vectors for _, vectors in batch], axis=1)  # (J, words, D)
            rows = self._table[start : start + vectors.shape[1]]
            rows.copy_(to_device(vectors, rows.device).transpose(0, 1))
            for words, _ in batch:
                self._first_row[tuple(words)] = start
                start += len(words)
                yield words

    def __call__(self, texts: Sequence[Text]) -> Float[Tensor, "B J T D"]:
        """Return the layers of a batch of texts, padded with zeros."""
        keys = [[tuple(words) for words in text if words] for text in texts]
        table, first_row = self._table, self._first_row
        if any(key not in first_row for text in keys for key in text):
            table, first_row = self._compute(list(chain.from_iterable(keys)))
        longest = max(1, *(sum(map(len, text)) for text in keys))
        rows = np.full((len(keys), longest), -1)
        for row, text in zip(rows, keys, strict=True):
            words = (range(first_row[key], first_row[key] + len(key)) for key in text)
            row[: sum(map(len, text))] = list(chain.from_iterable(words))
        indices = to_device(rows, table.device)
        layers = table[indices.clamp(min=0)] * (indices >= 0)[..., None, None]  # (B, T, J, D)
        return to_device(layers, self.embedder.device).float().transpose(1, 2)

    def _compute(
        self, sentences: Sequence[tuple[str, ...]]
    ) -> tuple[Float[Tensor, "N J D"], dict[tuple[str, ...], int]]:
        """Return a table of these sentences only, and their first rows."""
        vectors = np.concatenate(self.embedder.embed(sentences), axis=1)  # (J, N, D)
        table = to_device(vectors, self.embedder.device).transpose(0, 1)
        starts = accumulate(map(len, sentences), initial=0)
        return table, dict(zip(sentences, starts, strict=False))
