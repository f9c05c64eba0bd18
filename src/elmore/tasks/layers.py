"""The biLM's layers of every sentence of a task, computed once and kept.

The biLM is frozen, so a sentence has the same layers in every epoch. They are kept as one table of
words in half precision: on the GPU if they fit, else in a file that is mapped into memory.

B sentences, J layers, T words, D dim; N words in all.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embedder import Embedded, Embedder
from elmore.errors import InputError
from elmore.text.sentences import Sentence

_SHARE_OF_GPU = 0.5
"""At most so much of a GPU's free memory is filled with layers."""

Watch = Callable[[Iterator[Embedded]], Iterator[Embedded]]


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
    """Sentences to layers: those that were prepared are looked up, others computed on the spot."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._place: dict[tuple[str, ...], int] = {}
        self._table = torch.zeros(0, embedder.num_layers, embedder.dim, dtype=torch.float16)

    def prepare(self, sentences: Iterable[Sentence], watch: Watch = iter) -> None:
        """Compute the layers of all different sentences, and keep them."""
        distinct = list(dict.fromkeys(tuple(words) for words in sentences if words))
        count = sum(map(len, distinct))
        J, D = self.embedder.num_layers, self.embedder.dim
        _check_room(2 * count * J * D)
        # A file without a name: it may be larger than memory, and is gone with the mapping.
        with tempfile.TemporaryFile() as file:
            mapped = np.memmap(file, np.float16, "w+", shape=(max(count, 1), J, D))
        start = 0
        for tokens, vectors in watch(self.embedder.stream(distinct)):  # (J, T, D) each
            self._place[tuple(tokens)] = start
            mapped[start : start + len(tokens)] = vectors.swapaxes(0, 1)
            start += len(tokens)
        self._table = torch.from_numpy(mapped)
        if self._fits():
            self._table = self._table.to(self.embedder.device)

    def _fits(self) -> bool:
        device = self.embedder.device
        if device.type != "cuda":
            return False
        free, _ = torch.cuda.mem_get_info(device)
        return self._table.nbytes < _SHARE_OF_GPU * free

    def __call__(self, sentences: Sequence[Sentence]) -> Float[Tensor, "B J T D"]:
        """Return the layers of a batch, with zeros after the end of a sentence."""
        longest = max(1, *map(len, sentences))
        keys = [tuple(words) for words in sentences]
        if all(key in self._place or not key for key in keys):
            rows = torch.full((len(keys), longest), -1)
            for row, key in zip(rows, keys, strict=True):
                if key:
                    row[: len(key)] = torch.arange(len(key)) + self._place[key]
            return self._look_up(rows)
        J, D = self.embedder.num_layers, self.embedder.dim
        layers = torch.zeros(len(keys), J, longest, D)
        for row, vectors in zip(layers, self.embedder.embed(list(map(list, keys))), strict=True):
            row[:, : vectors.shape[1]] = torch.from_numpy(vectors)
        return layers.to(self.embedder.device)

    def _look_up(self, rows: Int[Tensor, "B T"]) -> Float[Tensor, "B J T D"]:
        rows = rows.to(self._table.device)
        found = self._table[rows.clamp(min=0)].to(self.embedder.device).float()  # (B, T, J, D)
        return (found * (rows >= 0).to(found.device)[..., None, None]).transpose(1, 2)
