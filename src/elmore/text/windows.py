"""A corpus to windows of tokens for truncated backpropagation through time, without padding.

Each of the B rows of a batch reads one sentence after another, in windows of T tokens. When a row
reaches the end of a sentence, it continues with the next sentence, so there is no padding. `</S>`
is only a target and never an input, and a target is in the same sentence as its input:

    row 0   input    <S> He sat | by <S> Banks
            target   He  sat by | </S> Banks fail

The backward language model reads the sentences in a different order, each from its end, with `<S>`
as the last target. The packing is that of bilm-tf, except that the order of sentences depends only
on the seed.

By default, the LSTM state is reset at the start of each sentence, as in `Embedder.embed`. bilm-tf
carries the state over from the previous sentence of the row; `carry_state` does the same.

2 directions, B rows, T tokens, N distinct words, C characters, S sentences, W words of the corpus.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from elmore.text.corpus import BOS, EOS, Corpus

FORWARD, BACKWARD = 0, 1
_STEP = (+1, -1)  # offset from an input to its target, by direction
_DISTINCT_MULTIPLE = 256


class LMBatch(NamedTuple):
    """One window of every row; index 0 is the forward language model, 1 the backward one."""

    distinct: Int[Tensor, "N ..."]
    """Character ids or vocabulary ids of the distinct words of the window.

    May end with rows of zeros that `words` does not refer to.
    """

    words: Int[Tensor, "2 B T"]
    """Input words, as indices into `distinct`."""

    targets: Int[Tensor, "2 B T"]
    """Words to predict, as vocabulary ids."""

    keep_state: Bool[Tensor, "2 B T"]
    """False where the LSTM state is reset to zeros before the token."""


class Windows:
    """An infinite sequence of windows, epoch after epoch, in an order determined by the seed.

    Args:
        corpus: The encoded corpus.
        targets: Target id of each word of the corpus; see `Corpus.targets`.
        max_characters: Character ids per word (C).
        rows: Rows of a batch (B).
        steps: Tokens per window (T).
        seed: Determines the order of sentences.
        carry_state: Carry the LSTM state over from one sentence to the next, as bilm-tf does.
        sentences: Indices of the sentences to read; all by default.
        state: A result of `state()`, to resume from there.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        targets: Int[np.ndarray, " W"],
        max_characters: int,
        rows: int,
        steps: int,
        seed: int,
        carry_state: bool = False,
        sentences: Int[np.ndarray, " S"] | None = None,
        state: Int[np.ndarray, "2 2+2*B"] | None = None,
    ) -> None:
        if sentences is None:
            sentences = np.arange(corpus.num_sentences)
        self._corpus = corpus
        self._targets = targets
        self._characters = corpus.characters(max_characters)
        self._steps = steps
        self._carry_state = carry_state
        self._readers = [
            _Reader(corpus.starts, sentences, direction, rows=rows, seed=seed)
            for direction in (FORWARD, BACKWARD)
        ]
        if state is not None:
            for reader, reader_state in zip(self._readers, state, strict=True):
                reader.restore(reader_state)

    def next(self, rows: slice = slice(None)) -> LMBatch:
        """Return the next window, or a slice of its rows."""
        inputs = np.stack([reader.next(self._steps)[rows] for reader in self._readers])
        targets = inputs + np.array(_STEP)[:, None, None]
        tokens = self._corpus.tokens[inputs]
        distinct, words = np.unique(tokens, return_inverse=True)
        starts = tokens == np.array([BOS, EOS])[:, None, None]  # first token, by direction
        # Padded to a multiple, because tensors of ever new sizes fragment the heap on a CPU.
        size = len(distinct) + -len(distinct) % _DISTINCT_MULTIPLE
        characters = np.zeros((size, self._characters.shape[1]), np.int64)
        characters[: len(distinct)] = self._characters[distinct]
        return LMBatch(
            distinct=torch.from_numpy(characters),
            words=torch.from_numpy(words.reshape(inputs.shape)),
            targets=torch.from_numpy(self._targets[self._corpus.tokens[targets]]),
            keep_state=torch.from_numpy(~starts | self._carry_state),
        )

    def state(self) -> Int[np.ndarray, "2 2+2*B"]:
        """Return the position of every row, from which a new `Windows` can resume."""
        return np.stack([reader.state() for reader in self._readers])


class _Reader:
    """Positions of all rows of one direction, and the sentences that they read next."""

    def __init__(
        self,
        starts: Int[np.ndarray, " S+1"],
        sentences: Int[np.ndarray, " S"],
        direction: int,
        *,
        rows: int,
        seed: int,
    ) -> None:
        self._starts = starts
        self._sentences = sentences
        self._direction = direction
        self._seed = seed
        self._position = [0] * rows
        self._left = [0] * rows
        self._begin_epoch(0)

    def _begin_epoch(self, epoch: int, taken: int = 0) -> None:
        rng = np.random.default_rng([self._seed, epoch, self._direction])
        self._order = rng.permutation(self._sentences)
        self._epoch = epoch
        self._taken = taken

    def _take_sentence(self, row: int) -> None:
        if self._taken == len(self._order):
            self._begin_epoch(self._epoch + 1)
        sentence = self._order[self._taken]
        start, end = map(int, self._starts[sentence : sentence + 2])
        self._taken += 1
        self._position[row] = start if self._direction == FORWARD else end - 1
        self._left[row] = end - start - 1  # the last token is only a target

    def next(self, steps: int) -> Int[np.ndarray, "B T"]:
        """Return the indices in `Corpus.tokens` of the next `steps` inputs of each row."""
        position, left, step = self._position, self._left, _STEP[self._direction]
        starts: list[int] = []
        lengths: list[int] = []
        for row in range(len(position)):
            needed = steps
            while needed:
                if not left[row]:
                    self._take_sentence(row)
                length = min(left[row], needed)
                starts.append(position[row])
                lengths.append(length)
                position[row] += step * length
                left[row] -= length
                needed -= length
        # Expand all (start, length) ranges at once.
        ends = np.cumsum(lengths)
        offsets = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        return (np.repeat(starts, lengths) + step * offsets).reshape(len(position), steps)

    def state(self) -> Int[np.ndarray, " 2+2*B"]:
        """Return the argument of `restore`."""
        return np.array([self._epoch, self._taken, *self._position, *self._left], np.int64)

    def restore(self, state: Int[np.ndarray, " 2+2*B"]) -> None:
        """Resume from a state."""
        epoch, taken, *rows = state.tolist()
        self._begin_epoch(epoch, taken)
        self._position, self._left = rows[: len(rows) // 2], rows[len(rows) // 2 :]
