"""Sentences as parallel streams, for inference on a GPU: large batches without padding.

A GPU is fast when a step has many rows. Sentences of any length are put one behind the other into
streams of about the same length, and state is dropped where one starts. So every step has as many
rows as there are streams, as in training. A language model needs the mark that it starts from and
not the one at the end, so n words take n + 1 places:

    stream 0   forward   <S>  a  b  c <S>  d        words abc, d
    stream 1   forward   <S>  e  f  g  h  _         words efgh

    stream 0   backward  </S> d </S> c  b  a
    stream 1   backward   _ </S> h  g  f  e

T places, B streams, N words of all sentences, J layers, D dim.
"""

import heapq
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.bilm import kernels
from elmore.bilm.lstm import ProjectedLSTM
from elmore.bilm.model import BiLM, BiLMOutput, BiLMState
from elmore.bilm.token_encoder import CharEncoder
from elmore.transfer import to_device

_MAX_STREAMS = 512
_MULTIPLE = 8  # of places, so that there are few shapes

Run = Callable[[Tensor, Tensor], list[Tensor]]
"""From x (T, 2, B, D) and `continues` to the output (T, 2, B, D) of each LSTM layer."""


class Streams(NamedTuple):
    """Where the words of some sentences are."""

    words: Int[np.ndarray, "T 2 B"]
    """The word in each place, each direction in its own order; 0 where there is none."""

    continues: Bool[np.ndarray, "T 2 B"]
    """Whether a place goes on from the one before."""

    place: Int[np.ndarray, " N"]
    """Where the forward language model reads a word; the backward one does at T - place."""

    stream: Int[np.ndarray, " N"]


def pack(words: Int[np.ndarray, " N"], lengths: Sequence[int], *, bos: int, eos: int) -> Streams:
    """Put sentences into streams, as many as the longest sentence allows.

    Args:
        words: A number for each word of the sentences, one sentence after the other.
        lengths: Words of each sentence.
        bos: The number of the mark that the forward language model starts from.
        eos: The number of the mark that the backward one starts from.
    """
    n = np.array(lengths, dtype=np.int64)
    n = n[n > 0]  # an empty sentence needs no place
    most = min(_MAX_STREAMS, int((n + 1).sum()) // int(n.max(initial=0) + 1))
    B = 1 << max(most, 1).bit_length() - 1  # a power of two: few shapes again
    start, stream, T = _share_out(n + 1, B)
    T += -T % _MULTIPLE
    first = np.cumsum(n) - n
    place = np.arange(len(words)) + np.repeat(start + 1 - first, n)
    of_word = np.repeat(stream, n)
    found = Streams(
        np.zeros((T, 2, B), dtype=np.int64), np.zeros((T, 2, B), dtype=bool), place, of_word
    )
    found.words[start, 0, stream] = bos
    found.words[T - 1 - start - n, 1, stream] = eos
    for d, t in enumerate((place, T - place)):
        found.words[t, d, of_word] = words
        found.continues[t, d, of_word] = True
    return found


def _share_out(
    sizes: Int[np.ndarray, " S"], B: int
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"], int]:
    """Return where each sentence starts, in which stream, and the length of the longest stream.

    The longest sentence comes first, and each goes to the stream that is shortest so far.
    """
    order = np.argsort(-sizes, kind="stable")
    streams = list(range(B))  # a heap of length * B + number: one integer is quick to compare
    starts = [heapq.heapreplace(streams, streams[0] + size) for size in (B * sizes[order]).tolist()]
    found = np.zeros((2, len(sizes)), dtype=np.int64)
    found[:, order] = np.divmod(np.array(starts, dtype=np.int64), B)
    return found[0], found[1], max(1, max(streams) // B)


class StreamedBiLM(nn.Module):
    """A twin of a biLM that runs over streams; on a CUDA device with the kernels for it."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.config = bilm.config
        self.bilm = bilm
        self._lock = Lock()
        self._run: Run = self._by_reference
        if kernels.usable(next(bilm.parameters())) and bilm.config.project_cells:
            from elmore.bilm.kernels.replay import Replayed
            from elmore.bilm.kernels.waves import Lanes

            pairs = zip(bilm.forward_lstms, bilm.backward_lstms, strict=True)
            lstms = cast("list[tuple[ProjectedLSTM, ProjectedLSTM]]", list(pairs))
            self._run = Replayed(Lanes(lstms, residual=bilm.config.residual))

    def contextualize(
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"], state: BiLMState | None = None
    ) -> BiLMOutput:
        """Run over padded sentences, from a state if there is one, as the biLM does."""
        return self.bilm.contextualize(x, mask, state)

    def encode(self, ids: Int[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """Encode words on their own."""
        if isinstance(self.bilm.encode, CharEncoder) and kernels.usable(ids):
            from elmore.bilm.kernels.characters import encode

            with torch.cuda.device_of(ids):  # kernels run on the current device
                return encode(self.bilm.encode, ids)
        return self.bilm.encode(ids)

    def forward(
        self, table: Float[Tensor, "V D"], words: Int[np.ndarray, " N"], streams: Streams
    ) -> Float[Tensor, "J N 2*D"]:
        """Return all layers of the words, whose vectors are rows of the table."""
        device = table.device
        x = table[to_device(streams.words, device)]  # (T, 2, B, D)
        place, stream = (to_device(i, device) for i in (streams.place, streams.stream))
        token = table[to_device(words, device)]
        layers = [torch.cat([token, token], dim=-1)]
        # What a recording returns is good until the next call, which may be another thread's.
        with self._lock, torch.cuda.device_of(x):
            for h in self._run(x, to_device(streams.continues, device)):
                ahead, behind = h[place, 0, stream], h[len(h) - place, 1, stream]
                layers.append(torch.cat([ahead, behind], dim=-1))
        return torch.stack(layers)

    def _by_reference(
        self, x: Float[Tensor, "T 2 B D"], continues: Bool[Tensor, "T 2 B"]
    ) -> list[Float[Tensor, "T 2 B D"]]:
        """Do what the kernels do, one direction after the other."""
        nothing = [None] * self.config.num_layers
        directions = [
            self.bilm.run_stack(lstms, x[:, d].transpose(0, 1), None, nothing, continues[:, d].T)[0]
            for d, lstms in enumerate((self.bilm.forward_lstms, self.bilm.backward_lstms))
        ]
        # (B, T, D) twice -> (T, 2, B, D)
        return [torch.stack(pair).permute(2, 0, 1, 3) for pair in zip(*directions, strict=True)]
