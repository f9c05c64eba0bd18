"""How well a biLM predicts text: perplexity with the full softmax.

Every sentence starts from a zero state, as it does when it is embedded. So the result depends on
the text alone, not on batches or on the order of sentences.

B sentences, T tokens, D dim.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmore.bilm.language_model import LanguageModel
from elmore.errors import InputError
from elmore.text.characters import encode_words
from elmore.text.sentences import batch_sentences, group_by_length
from elmore.text.vocabulary import Vocabulary

_SORTED_AT_ONCE = 4096  # sentences


class Perplexity(NamedTuple):
    """Perplexity of a text."""

    forward: float
    backward: float

    tokens: int
    """Words that each direction predicted; the end of a sentence is one."""

    unknown: float
    """Share of the words that are not in the vocabulary and count as `<UNK>`."""

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
    """Score tokenized sentences."""
    sums = np.zeros(2)
    tokens = words = unknown = 0
    training = model.training
    model.eval()
    try:
        for batch in _batches(sentences, batch_words):
            sums += _score(model, vocabulary, batch)
            tokens += sum(len(sentence) + 1 for sentence in batch)
            words += sum(map(len, batch))
            unknown += sum(w not in vocabulary for sentence in batch for w in sentence)
    finally:
        model.train(training)
    if not tokens:
        raise InputError("no sentences to measure perplexity on")
    forward, backward = (math.exp(min(total / tokens, 700)) for total in sums)
    return Perplexity(forward, backward, tokens, unknown / max(words, 1))


@torch.no_grad()
def _score(
    model: LanguageModel, vocabulary: Vocabulary, sentences: list[Sequence[str]]
) -> np.ndarray:
    """Return the summed -log p of each direction."""
    device = model.softmax.weight.device
    width = model.bilm.config.max_characters
    batch = batch_sentences(sentences, lambda words: encode_words(words, width)).to(device)
    numbers = batch_sentences(sentences, vocabulary.encode_words).ids.to(device) - 1  # (B, T)
    top = model.bilm(*batch).layers[:, -1]  # (B, T, 2D)
    ahead, behind = top.chunk(2, dim=-1)
    # At <S> w1 .. wn the forward model predicts w1 .. wn </S>; the backward one the other way.
    has_next = batch.mask[:, 1:]
    return np.array(
        [
            _nll(model, ahead[:, :-1][has_next], numbers[:, 1:][has_next]),
            _nll(model, behind[:, 1:][has_next], numbers[:, :-1][has_next]),
        ]
    )


def _nll(model: LanguageModel, h: Tensor, targets: Tensor) -> float:
    return float(model.softmax(h, targets).double().sum())


def _batches(sentences: Iterable[Sequence[str]], batch_words: int) -> Iterator[list[Sequence[str]]]:
    """Group sentences of like length, some thousands at a time; those without words are skipped."""
    waiting: list[Sequence[str]] = []
    for sentence in sentences:
        if sentence:
            waiting.append(sentence)
        if len(waiting) == _SORTED_AT_ONCE:
            yield from _by_length(waiting, batch_words)
            waiting = []
    yield from _by_length(waiting, batch_words)


def _by_length(sentences: list[Sequence[str]], batch_words: int) -> Iterator[list[Sequence[str]]]:
    for rows in group_by_length([len(words) + 2 for words in sentences], batch_words):
        yield [sentences[row] for row in rows]
