"""How well a biLM predicts text: perplexity with the full softmax.

Every sentence starts from a zero state, as it does when it is embedded. So the result depends on
the text alone, not on batches or on the order of sentences.

B sentences, T tokens, D dim.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmore.bilm.language_model import LanguageModel
from elmore.bilm.model import BiLM
from elmore.bilm.packed import PackedBiLM, worth_packing
from elmore.bilm.products import PackedSoftmax
from elmore.bilm.word_table import WordTable
from elmore.errors import InputError
from elmore.text.characters import encode_words
from elmore.text.sentences import batch_sentences, frame, group_by_length
from elmore.text.vocabulary import Vocabulary
from elmore.transfer import to_device

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
        scorer = _Scorer(model, vocabulary)
        for batch in _batches(sentences, batch_words):
            sums += scorer(batch)
            tokens += sum(len(sentence) + 1 for sentence in batch)
            words += sum(map(len, batch))
            unknown += sum(w not in vocabulary for sentence in batch for w in sentence)
    finally:
        model.train(training)
    if not tokens:
        raise InputError("no sentences to measure perplexity on")
    forward, backward = (math.exp(min(total / tokens, 700)) for total in sums)
    return Perplexity(forward, backward, tokens, unknown / max(words, 1))


class _Scorer:
    """Sentences to the sum of -log p, from packed weights where they are of use."""

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._device = model.softmax.weight.device
        self._bilm: BiLM | PackedBiLM = model.bilm
        self._nll: Callable[[Tensor, Tensor], Tensor] = model.softmax
        if worth_packing(model.bilm):
            self._bilm = PackedBiLM(model.bilm.config, model.bilm.state_dict())
            self._nll = PackedSoftmax(model.softmax)
        encode = partial(encode_words, width=model.bilm.config.max_characters)
        self._words = WordTable(self._bilm, encode, self._device)

    @torch.no_grad()
    def __call__(self, sentences: list[Sequence[str]]) -> np.ndarray:
        """Return the sum of each direction."""
        framed = [frame(words) for words in sentences]
        lengths = torch.tensor([len(words) for words in framed])
        rows = self._words(list(chain.from_iterable(framed)))
        vectors = self._words.vectors[to_device(rows, self._device)]
        x = pad_sequence(vectors.split(lengths.tolist()), batch_first=True)  # (B, T, D)
        mask = (torch.arange(x.shape[1]) < lengths[:, None]).to(self._device)
        top = self._bilm.contextualize(x, mask).layers[:, -1]  # (B, T, 2D)
        ahead, behind = top.chunk(2, dim=-1)
        numbers = batch_sentences(sentences, self._vocabulary.encode_words).ids - 1  # (B, T)
        numbers = numbers.to(self._device)
        # At <S> w1 .. wn the forward model predicts w1 .. wn </S>; the backward one the other way.
        has_next = mask[:, 1:]
        return np.array(
            [
                float(self._nll(h[has_next], targets[has_next]).double().sum())
                for h, targets in (
                    (ahead[:, :-1], numbers[:, 1:]),
                    (behind[:, 1:], numbers[:, :-1]),
                )
            ]
        )


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
