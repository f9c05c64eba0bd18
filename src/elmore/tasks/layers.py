"""The biLM's layers of every sentence of a task, computed once and kept.

The biLM is frozen, so a sentence has the same layers in every epoch. They are kept as one table of
words in half precision: on the GPU if they fit, else in a file that is mapped into memory.

B texts, J layers, T words, D dim; N words in all.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
import torch
from jaxtyping import Float, Float16, Int
from torch import Tensor

from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.sentences import Sentence
from elmore.transfer import to_device

_SHARE_OF_GPU = 0.5
"""At most so much of a GPU's free memory is filled with layers."""

_SENTENCES_AT_ONCE = 256  # on their way to the table

Text = Sequence[Sentence]
"""Sentences in their order. The biLM reads each on its own (section 3.4)."""

Watch = Callable[[Iterator[Sentence]], Iterator[Sentence]]


def _check_room(size: int) -> None:
    """Refuse a table that the disk can't hold: writing it would end the program without a word."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"ELMo's layers of all sentences take {size / 1e9:.1f} GB, and {folder} has "
            f"{free / 1e9:.1f} GB left; name a larger disk in the variable TMPDIR"
        )


class LayerTable:
    """Texts to layers: those that were prepared are looked up, others computed on the spot."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._place: dict[tuple[str, ...], int] = {}
        self._table: Float16[Tensor, "N J D"] = torch.zeros(
            0, embedder.num_layers, embedder.dim, dtype=torch.float16
        )

    def prepare(self, sentences: Iterable[Sentence], watch: Watch = iter) -> None:
        """Compute the layers of all different sentences, and keep them."""
        distinct = list(dict.fromkeys(tuple(words) for words in sentences if words))
        self._table = self._room_for(sum(map(len, distinct)))
        for _ in watch(self._fill(distinct)):
            pass
        self.embedder.free()  # the memory is for the task now

    def _room_for(self, count: int) -> Float16[Tensor, "N J D"]:
        shape = (max(count, 1), self.embedder.num_layers, self.embedder.dim)
        size, device = 2 * np.prod(shape, dtype=int).item(), self.embedder.device
        if device.type == "cuda" and size < _SHARE_OF_GPU * torch.cuda.mem_get_info(device)[0]:
            return torch.empty(shape, dtype=torch.float16, device=device)
        _check_room(size)
        # A file without a name: it may be larger than memory, and is gone with the mapping.
        with tempfile.TemporaryFile() as file:
            return torch.from_numpy(np.memmap(file, np.float16, "w+", shape=shape))

    def _fill(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        start = 0
        stream = self.embedder.stream(sentences, dtype="float16")
        while some := list(islice(stream, _SENTENCES_AT_ONCE)):
            vectors = np.concatenate([vectors for _, vectors in some], axis=1)  # (J, words, D)
            rows = self._table[start : start + vectors.shape[1]]
            rows.copy_(to_device(vectors, rows.device).transpose(0, 1))
            for words, _ in some:
                self._place[tuple(words)] = start
                start += len(words)
                yield words

    def __call__(self, texts: Sequence[Text]) -> Float[Tensor, "B J T D"]:
        """Return the layers of a batch, with zeros after the end of a text."""
        longest = max(1, *(sum(map(len, text)) for text in texts))
        keys = [[tuple(words) for words in text if words] for text in texts]
        if all(key in self._place for key in chain.from_iterable(keys)):
            rows = np.full((len(keys), longest), -1)
            for row, text in zip(rows, keys, strict=True):
                start = 0
                for key in text:
                    row[start : start + len(key)] = np.arange(len(key)) + self._place[key]
                    start += len(key)
            return self._look_up(torch.from_numpy(rows))
        layers = torch.zeros(len(keys), self.embedder.num_layers, longest, self.embedder.dim)
        computed = iter(self.embedder.embed([list(key) for text in keys for key in text]))
        for row, text in zip(layers, keys, strict=True):
            start = 0
            for key in text:
                row[:, start : start + len(key)] = torch.from_numpy(next(computed))
                start += len(key)
        return to_device(layers, self.embedder.device)

    def _look_up(self, rows: Int[Tensor, "B T"]) -> Float[Tensor, "B J T D"]:
        rows = to_device(rows, self._table.device)
        found = self._table[rows.clamp(min=0)] * (rows >= 0)[..., None, None]  # (B, T, J, D)
        return to_device(found, self.embedder.device).float().transpose(1, 2)
