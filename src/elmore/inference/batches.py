"""The batching loop: tokenized sentences in, numpy arrays out, in the same order.

W words of a sentence, N words of a batch, J layers, D width of a vector, both directions together.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from elmore.bilm.model import BiLMState
from elmore.inference.engine import Engine, without_autograd
from elmore.inference.fetch import Fetcher
from elmore.inference.long import Select, run_batch
from elmore.inference.word_cache import Word, WordCache
from elmore.text.sentences import BOS_WORD, EOS_WORD, EncodeWords, add_boundaries

WINDOW_WORDS = 2**20
"""Size of a window, see `SentenceRunner.stream_windows`. Smaller ones encode more words again."""
_BATCHES_AHEAD = {"cuda": 2}  # computed while the caller works with an earlier one; else none


class Embedded(NamedTuple):
    """A sentence and its vectors: (J, W, D) for all layers, else (W, D)."""

    tokens: list[str]
    vectors: Float[np.ndarray, "..."]


class Batch(NamedTuple, Generic[Word]):
    """Sentences one after another, as one flat list: creating thousands of lists is slow."""

    words: list[Word]
    lengths: list[int]

    def sentences(self) -> Iterator[list[Word]]:
        """Yield the words of each sentence."""
        start = 0
        for length in self.lengths:
            yield self.words[start : start + length]
            start += length


class SentenceRunner:
    """Runs sentences through an engine. Thread-safe.

    Args:
        engine: The frozen biLM.
        encode_words: Maps words to ids.
    """

    def __init__(self, engine: Engine, encode_words: EncodeWords) -> None:
        self.engine = engine
        self._encode_words = encode_words
        self.words: WordCache[str] = WordCache(engine, encode_words)
        with without_autograd(engine.device):
            table, rows, _ = self.words.look_up([BOS_WORD, EOS_WORD])
            self._start = engine.start_state(table[rows.tolist()])

    def stream(
        self, sentences: Iterable[list[str]], select: Select, *, max_words: int
    ) -> Iterator[Embedded]:
        """Yield words and vectors of independent sentences, up to about `max_words` at once."""
        return self._pipeline(
            split(sentences, max_words), lambda batch: self._run(batch, self.words, select)
        )

    def stream_windows(
        self, sentences: Iterable[list[str]], select: Select, *, max_words: int, skip: int = 0
    ) -> Iterator[tuple[int, int, Embedded]]:
        """Yield what `stream` does, reproducible to the bit from the start of any window.

        Each sentence comes after its index and the index of the first sentence of its window.

        Rounding depends on the batch of a sentence, and on the words with which a word is encoded.
        A window is a fixed number of batches and starts with an empty word cache, so its vectors do
        not depend on earlier ones.

        Args:
            sentences: The text from the start of a window on.
            select: See `stream`.
            max_words: See `stream`.
            skip: Do not yield this many sentences. Batches of only such sentences are not run
                through the LSTMs; their words are encoded for the cache.
        """
        batches_per_window = max(1, WINDOW_WORDS // max_words)
        cache, positions = self.words, deque[tuple[int, int]]()

        def batches() -> Iterator[Batch[str]]:
            nonlocal cache
            end = window_start = 0
            for number, batch in enumerate(split(sentences, max_words)):
                start, end = end, end + len(batch.lengths)
                if number % batches_per_window == 0:
                    window_start, cache = start, WordCache(self.engine, self._encode_words)
                if end > skip:
                    positions.extend((index, window_start) for index in range(start, end))
                    yield batch
                else:
                    with without_autograd(self.engine.device):
                        cache.look_up(batch.words)

        for embedded in self._pipeline(batches(), lambda batch: self._run(batch, cache, select)):
            index, window_start = positions.popleft()
            if index >= skip:
                yield index, window_start, embedded

    def stream_with_state(
        self, sentences: Iterable[list[str]], select: Select
    ) -> Iterator[Embedded]:
        """Yield words and vectors, each sentence from the state after the one before it."""
        state: BiLMState | None = None

        def run(batch: Batch[str]) -> Tensor:
            nonlocal state
            tokens = self.words.look_up(add_boundaries(batch.words), [len(batch.words) + 2])
            layers, state = self.engine.run_with_state(tokens, state)
            return select(layers[:, 1:-1])

        return self._pipeline(split(sentences, 1), run)

    def _run(
        self, batch: Batch[str], words: WordCache[str], select: Select
    ) -> Float[Tensor, "*J N D"]:
        return run_batch(self.engine, words.look_up(*batch), self._start, select)

    def _pipeline(
        self, batches: Iterable[Batch[str]], run: Callable[[Batch[str]], Tensor]
    ) -> Iterator[Embedded]:
        """Compute batch after batch while earlier results are copied to the host."""
        pending: deque[Iterator[Embedded]] = deque()
        device = self.engine.device
        max_pending = _BATCHES_AHEAD.get(device.type, 0)
        with Fetcher() as fetcher:
            for batch in batches:
                with without_autograd(device):  # not while the caller's iterator or loop body runs
                    arrays = fetcher.start(run(batch), batch.lengths)
                pending.append(map(Embedded, batch.sentences(), arrays))
                if len(pending) > max_pending:
                    yield from pending.popleft()
            while pending:
                yield from pending.popleft()


def split(sentences: Iterable[Sequence[Word]], max_words: int) -> Iterator[Batch[Word]]:
    """Group consecutive sentences into batches of about `max_words` words.

    Longer sentences are batches of their own.
    """
    words: list[Word] = []
    lengths: list[int] = []
    size = 0
    for sentence in sentences:
        if lengths and len(sentence) > max_words:
            yield Batch(words, lengths)
            words, lengths, size = [], [], 0
        words += sentence
        lengths.append(len(sentence))
        size += len(sentence) + 2  # with boundary tokens; also counts empty sentences
        if size >= max_words:
            yield Batch(words, lengths)
            words, lengths, size = [], [], 0
    if lengths:
        yield Batch(words, lengths)
