"""A corpus to windows of tokens for truncated back-propagation, packed without waste.

Each of B rows is a stream of sentences, cut into windows of T tokens. A row that has come to the
end of its sentence takes the next one at once, so that no position is empty. `</S>` is predicted
and never read, nothing is predicted across the border of two sentences:

    row 0   read     <S> He sat | by <S> Banks
            predict  He  sat by | </S> Banks fail

The backward language model has streams of its own, in another order, and reads each sentence from
its end. This is bilm-tf's packing, with an order that can be repeated.

A sentence that is embedded starts from a zero state, so that is how it is learned, too; the
released code lets the state of whatever sentence came before go on.

2 directions, B rows, T tokens, N distinct words, C characters.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from elmore.text.corpus import BOS, EOS, Corpus

AHEAD, BEHIND = 0, 1
_STEP = (+1, -1)  # where a direction reads on
_DISTINCT_MULTIPLE = 256


class LMBatch(NamedTuple):
    """One window of every row: forward language model first, backward one second."""

    distinct: Int[Tensor, "N ..."]
    """Ids of the distinct words of the window: their characters, or their numbers.

    Rows of zeros may follow, which no word refers to.
    """

    words: Int[Tensor, "2 B T"]
    """What is read, as rows of `distinct`."""

    targets: Int[Tensor, "2 B T"]
    """What is predicted, as numbers of the vocabulary."""

    continues: Bool[Tensor, "2 B T"]
    """Where a token goes on from the one before it; elsewhere the state starts from zero."""


class Windows:
    """An endless stream of windows, epoch after epoch, in an order that only the seed decides.

    The state is a value: a stream that starts from `state()` goes on as this one would.

    Args:
        corpus: The text.
        targets: For each word of the corpus, the number that is predicted for it.
        max_characters: Characters of a word that are read (C).
        rows: Streams of sentences (B).
        steps: Tokens in a window (T).
        seed: Decides the order.
        carry_state: Go on from sentence to sentence, as the released code does.
        sentences: The sentences to read; all if not given.
        state: Where to go on.
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
        state: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        if sentences is None:
            sentences = np.arange(corpus.num_sentences)
        self._corpus = corpus
        self._targets = targets
        self._characters = corpus.characters(max_characters)
        self._steps = steps
        self._carry_state = carry_state
        self._streams = [
            _Streams(corpus.starts, sentences, direction, rows=rows, seed=seed)
            for direction in (AHEAD, BEHIND)
        ]
        if state is not None:
            self._restore(state)

    def next(self, rows: slice = slice(None)) -> LMBatch:
        """Return the next window, or the part of it that some rows make up."""
        read = np.stack([streams.next(self._steps)[rows] for streams in self._streams])
        predicted = read + np.array(_STEP)[:, None, None]
        tokens = self._corpus.tokens[read]
        distinct, words = np.unique(tokens, return_inverse=True)
        starts = tokens == np.array([BOS, EOS])[:, None, None]  # what a direction reads first
        # Filled up with rows of zeros, which nothing refers to: tensors of few different sizes
        # let memory be used again, where ever new ones would tear it to pieces.
        size = len(distinct) + -len(distinct) % _DISTINCT_MULTIPLE
        characters = np.zeros((size, self._characters.shape[1]), np.int64)
        characters[: len(distinct)] = self._characters[distinct]
        return LMBatch(
            distinct=torch.from_numpy(characters),
            words=torch.from_numpy(words.reshape(read.shape)),
            targets=torch.from_numpy(self._targets[self._corpus.tokens[predicted]]),
            continues=torch.from_numpy(~starts | self._carry_state),
        )

    def state(self) -> dict[str, np.ndarray]:
        """Return where every row is."""
        found = [streams.state() for streams in self._streams]
        return {name: np.stack([state[name] for state in found]) for name in found[0]}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        for direction, streams in enumerate(self._streams):
            streams.restore({name: values[direction] for name, values in state.items()})


class _Streams:
    """The rows of one direction: in which sentence each is, and what is left of it."""

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
        draw = np.random.default_rng([self._seed, epoch, self._direction])
        self._order = draw.permutation(self._sentences)
        self._epoch = epoch
        self._taken = taken

    def _take_sentence(self, row: int) -> None:
        if self._taken == len(self._order):
            self._begin_epoch(self._epoch + 1)
        sentence = self._order[self._taken]
        start, end = map(int, self._starts[sentence : sentence + 2])
        self._taken += 1
        self._position[row] = start if self._direction == AHEAD else end - 1
        self._left[row] = end - start - 1  # the last token is predicted, not read

    def next(self, steps: int) -> Int[np.ndarray, "B T"]:
        """Return the positions in the corpus that each row reads next."""
        position, left, step = self._position, self._left, _STEP[self._direction]
        begins: list[int] = []
        lengths: list[int] = []
        for row in range(len(position)):
            need = steps
            while need:
                if not left[row]:
                    self._take_sentence(row)
                length = min(left[row], need)
                begins.append(position[row])
                lengths.append(length)
                position[row] += step * length
                left[row] -= length
                need -= length
        # Every run of positions at once: its begin, and how far into the run each place is.
        ends = np.cumsum(lengths)
        into = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        return (np.repeat(begins, lengths) + step * into).reshape(len(position), steps)

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restore` takes."""
        return {
            "epoch": np.array(self._epoch),
            "taken": np.array(self._taken),
            "position": np.array(self._position, np.int64),
            "left": np.array(self._left, np.int64),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self._begin_epoch(int(state["epoch"]), int(state["taken"]))
        self._position = state["position"].tolist()
        self._left = state["left"].tolist()
