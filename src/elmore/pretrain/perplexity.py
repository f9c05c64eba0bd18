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

from elmore.bilm.language_model import LanguageModel
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.batches import split
from elmore.inference.engine import without_autograd
from elmore.inference.word_cache import WordCache
from elmore.text.characters import encode_words
from elmore.text.sentences import add_boundaries
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
    engine = new_engine(copy.deepcopy(model.bilm))
    device = engine.device
    cache: WordCache[str] = WordCache(
        engine, partial(encode_words, width=model.bilm.config.max_characters)
    )
    nll = np.zeros(2)  # sum over all tokens, by direction
    num_words = num_sentences = unknown = 0
    for batch in split(filter(None, sentences), batch_words):
        num_words += len(batch.words)
        num_sentences += len(batch.lengths)
        unknown += sum(word not in vocabulary for word in batch.words)
        words = [word for sentence in batch.sentences() for word in add_boundaries(sentence)]
        lengths = np.array(batch.lengths) + 2
        # At <S> w1 .. wn the forward LM predicts w1 .. wn </S>, the backward LM the reverse.
        current = to_device(np.delete(np.arange(len(words)), np.cumsum(lengths) - 1), device)
        targets = to_device(vocabulary.encode_words(words) - 1, device)
        with without_autograd(device):
            layers, _ = engine.run_with_state(cache.look_up(words, lengths))
            forward, backward = layers[-1].chunk(2, dim=-1)
            forward_nll = model.softmax(forward[current], targets[current + 1])
            backward_nll = model.softmax(backward[current + 1], targets[current])
            nll += [float(x.double().sum()) for x in (forward_nll, backward_nll)]
    if not num_words:
        raise InputError("no sentences to measure perplexity on")
    tokens = num_words + num_sentences
    forward_ppl, backward_ppl = (math.exp(min(total / tokens, 700)) for total in nll)
    return Perplexity(forward_ppl, backward_ppl, tokens, unknown / num_words)
