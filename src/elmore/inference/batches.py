"""The batching loop: tokenized sentences in, numpy arrays out, in the same order.

W words of a sentence, N words of a batch, J layers, D dim.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.bilm.model import BiLMState
from elmore.inference.engine import Engine, frozen
from elmore.inference.fetch import Fetcher
from elmore.inference.word_cache import WordCache
from elmore.text.sentences import BOS_WORD, EOS_WORD, EncodeWords, frame

# Batches a GPU computes while the caller works with the one before. A CPU does both itself.
_BATCHES_AHEAD = {"cpu": 0, "cuda": 2}

Choose = Callable[[Float[Tensor, "J N D"]], Float[Tensor, "*J N D"]]
"""Selects layers."""


class Embedded(NamedTuple):
    """A sentence and its vectors: (J, W, D) for all layers, else (W, D)."""

    tokens: list[str]
    vectors: Float[np.ndarray, "..."]


class Batch(NamedTuple):
    """Sentences one after another, as one flat list: creating thousands of lists is slow."""

    words: list[str]
    lengths: list[int]

    def sentences(self) -> Iterator[list[str]]:
        """Yield the words of each sentence."""
        start = 0
        for length in self.lengths:
            yield self.words[start : start + length]
            start += length


class SentenceRunner:
    """Sentences to layers: an engine, the token vectors of words, and the start state.

    Several threads may share one.

    Args:
        engine: The frozen biLM.
        encode_words: Words to ids.
    """

    def __init__(self, engine: Engine, encode_words: EncodeWords) -> None:
        self.engine = engine
        self.words: WordCache[str] = WordCache(engine, encode_words)
        with frozen(engine.device):
            table, rows = self.words.look_up([BOS_WORD, EOS_WORD])
            self._start = engine.start_state(table[rows.tolist()])
        if engine.device.type == "cuda":  # threads may use it on streams of their own
            torch.cuda.current_stream(engine.device).synchronize()

    def stream(
        self, sentences: Iterable[list[str]], choose: Choose, *, max_words: int
    ) -> Iterator[Embedded]:
        """Yield words and vectors of independent sentences, up to about `max_words` at once."""
        return self._pipeline(split(sentences, max_words), self._run, choose)

    def stream_with_state(
        self, sentences: Iterable[list[str]], choose: Choose
    ) -> Iterator[Embedded]:
        """Yield words and vectors, each sentence from the state after the one before it."""
        state: BiLMState | None = None

        def run(batch: Batch) -> Tensor:
            nonlocal state
            table, rows = self.words.look_up(frame(batch.words))
            layers, state = self.engine.run_with_state(table, rows, np.array([len(rows)]), state)
            return layers[:, 1:-1]

        return self._pipeline(split(sentences, 1), run, choose)

    def _run(self, batch: Batch) -> Float[Tensor, "J N D"]:
        table, rows = self.words.look_up(batch.words)
        return self.engine.run(table, rows, np.array(batch.lengths, dtype=np.int64), self._start)

    def _pipeline(
        self, batches: Iterable[Batch], run: Callable[[Batch], Tensor], choose: Choose
    ) -> Iterator[Embedded]:
        """Compute batch after batch while earlier results are copied to the host."""
        ahead: deque[tuple[Batch, Callable[[], Iterator[np.ndarray]]]] = deque()
        device = self.engine.device
        with Fetcher() as fetcher:
            for batch in batches:
                with frozen(device):  # not while the caller's iterator or loop body runs
                    ahead.append((batch, fetcher.start(choose(run(batch)), batch.lengths)))
                if len(ahead) > _BATCHES_AHEAD[device.type]:
                    finished, fetch = ahead.popleft()
                    yield from map(Embedded, finished.sentences(), fetch())
            while ahead:
                finished, fetch = ahead.popleft()
                yield from map(Embedded, finished.sentences(), fetch())


def split(sentences: Iterable[Sequence[str]], max_words: int) -> Iterator[Batch]:
    """Group consecutive sentences into batches of about `max_words` words."""
    words: list[str] = []
    lengths: list[int] = []
    size = 0
    for sentence in sentences:
        words += sentence
        lengths.append(len(sentence))
        size += len(sentence) + 2
        if size >= max_words:
            yield Batch(words, lengths)
            words, lengths, size = [], [], 0
    if lengths:
        yield Batch(words, lengths)
