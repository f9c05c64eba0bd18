"""How well a biLM predicts text: perplexity with the full softmax.

Every sentence starts from a zero state, as it does when it is embedded, so the result does not
depend on batches or on the order of sentences.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.bilm.language_model import LanguageModel
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.batches import Batch, split
from elmore.inference.engine import without_autograd
from elmore.inference.word_cache import WordCache
from elmore.text.characters import encode_words
from elmore.text.sentences import frame
from elmore.text.vocabulary import Vocabulary
from elmore.transfer import to_device


class Perplexity(NamedTuple):
    """Perplexity of a text."""

    forward: float
    backward: float

    tokens: int
    """The number of tokens that each direction predicts, `</S>` or `<S>` included."""

    unknown: float
    """The share of words outside the vocabulary, which count as `<UNK>`."""

    @property
    def average(self) -> float:
        """The mean of the two directions."""
        return (self.forward + self.backward) / 2

    def __str__(self) -> str:
        return (
            f"perplexity {self.average:.2f} (forward {self.forward:.2f}, backward "
            f"{self.backward:.2f}), {self.tokens:,} tokens, {self.unknown:.2%} unknown"
        )


def measure_perplexity(
    model: LanguageModel,
    vocabulary: Vocabulary,
    sentences: Iterable[Sequence[str]],
    *,
    batch_words: int = 2048,
) -> Perplexity:
    """Score tokenized sentences, about `batch_words` words at once."""
    sums = np.zeros(2)
    tokens = words = unknown = 0
    scorer = _Scorer(model, vocabulary)
    for batch in split(filter(None, sentences), batch_words):
        sums += scorer(batch)
        tokens += len(batch.words) + len(batch.lengths)
        words += len(batch.words)
        unknown += sum(word not in vocabulary for word in batch.words)
    if not tokens:
        raise InputError("no sentences to measure perplexity on")
    forward, backward = (math.exp(min(total / tokens, 700)) for total in sums)
    return Perplexity(forward, backward, tokens, unknown / max(words, 1))


class _Scorer:
    """Sentences to the sum of -log p, in the engine that embeds them."""

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._engine = new_engine(copy.deepcopy(model.bilm))
        self._softmax = model.softmax
        encode = partial(encode_words, width=model.bilm.config.max_characters)
        self._words: WordCache[str] = WordCache(self._engine, encode)

    def __call__(self, batch: Batch) -> Float[np.ndarray, " 2"]:
        """Return the sum of each direction."""
        device = self._engine.device
        words = [word for sentence in batch.sentences() for word in frame(sentence)]
        lengths = np.array(batch.lengths) + 2
        last = np.zeros(len(words), dtype=bool)
        last[np.cumsum(lengths) - 1] = True
        # At <S> w1 .. wn the forward LM predicts w1 .. wn </S>, the backward LM the reverse.
        has_next = to_device(np.flatnonzero(~last), device)
        targets = to_device(self._vocabulary.encode_words(words) - 1, device)
        with without_autograd(device):
            layers, _ = self._engine.run_with_state(*self._words.look_up(words), lengths)
            forward, backward = layers[-1].chunk(2, dim=-1)
            nlls = (
                self._softmax(forward[has_next], targets[has_next + 1]),
                self._softmax(backward[has_next + 1], targets[has_next]),
            )
            return np.array([float(nll.double().sum()) for nll in nlls])
