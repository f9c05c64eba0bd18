"""Sentences to a padded batch, whatever a token's ids are: characters or a word number.

[[a, b], [c]]  ->  <S> a b </S>      mask  1 1 1 1
                   <S> c </S> _            1 1 1 0
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

BOS_WORD, EOS_WORD = "<S>", "</S>"

Sentence = Sequence[str]
EncodeWords = Callable[[Sequence[str]], Tensor]
"""Words to their ids: (N,) word numbers, or (N, C) characters. No id is all zero."""


class TokenBatch(NamedTuple):
    """A padded batch of sentences, each framed by `<S>` and `</S>`."""

    ids: Int[Tensor, "B T *C"]
    mask: Bool[Tensor, "B T"]

    def to(self, device: torch.device | str) -> "TokenBatch":
        """Return the batch on a device."""
        return TokenBatch(self.ids.to(device), self.mask.to(device))

    @property
    def word_mask(self) -> Bool[Tensor, "B W"]:
        """Mark the words alone: n words and two markers fill n + 2 positions."""
        return self.mask[:, 2:]


def frame(words: Sentence) -> list[str]:
    """Put a sentence between its boundary markers."""
    return [BOS_WORD, *words, EOS_WORD]


def batch_sentences(sentences: Iterable[Sentence], encode_words: EncodeWords) -> TokenBatch:
    """Encode tokenized sentences as one padded batch. No sentences give a batch of none."""
    framed = [frame(check_sentence(words, i)) for i, words in enumerate(sentences)]
    ids = encode_words(list(chain.from_iterable(framed)))
    if not framed:
        return TokenBatch(ids.new_zeros(0, 2, *ids.shape[1:]), ids.new_zeros(0, 2).bool())
    rows = ids.split([len(words) for words in framed])
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (B, T, *C)
    lengths = torch.tensor([len(row) for row in rows])
    return TokenBatch(padded, torch.arange(padded.shape[1]) < lengths[:, None])


def check_sentence(words: Sentence, index: int) -> Sentence:
    """Return the sentence if it is a sequence of tokens."""
    if isinstance(words, str):
        # A str is a sequence of one-letter tokens: silently wrong, so refuse it.
        raise TypeError(
            f"sentence {index} is a string ({words[:40]!r}); expected a list of tokens. "
            "Split it first, for example with elmore.tokenize(sentence)."
        )
    if not isinstance(words, Sequence):
        raise TypeError(
            f"sentence {index} is {type(words).__name__}; expected a list of tokens such as "
            '["He", "sat", "by", "the", "bank"].'
        )
    for position, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(
                f"sentence {index}, token {position} is {type(word).__name__} ({word!r:.40}); "
                "expected a string."
            )
    return words


def group_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of sentences of like length, few enough for `max_tokens` when padded."""
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and lengths[row] * (len(group) + 1) > max_tokens:
            yield group
            group = []
        group.append(row)
    if group:
        yield group
