"""Sentences to a padded batch of character ids or vocabulary ids.

[[a, b], [c]]  ->  <S> a b </S>      mask  1 1 1 1
                   <S> c </S> _            1 1 1 0
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

BOS_WORD, EOS_WORD = "<S>", "</S>"

Sentence = Sequence[str]
EncodeWords = Callable[[Sequence[str]], Tensor]
"""Words to ids: (N,) vocabulary ids or (N, C) character ids. 0 is reserved for padding."""


class TokenBatch(NamedTuple):
    """A padded batch of sentences, each between `<S>` and `</S>`.

    B sentences, T tokens including the boundary tokens, W words, C characters.
    """

    ids: Int[Tensor, "B T *C"]
    mask: Bool[Tensor, "B T"]

    def to(self, device: torch.device | str) -> "TokenBatch":
        """Return the batch on a device."""
        return TokenBatch(self.ids.to(device), self.mask.to(device))

    @property
    def word_mask(self) -> Bool[Tensor, "B W"]:
        """Mask of the words, without the boundary tokens."""
        # n words fill n + 2 positions: dropping two columns leaves n of them.
        return self.mask[:, 2:]


def add_boundaries(words: Sentence) -> list[str]:
    """Add the boundary tokens `<S>` and `</S>`."""
    return [BOS_WORD, *words, EOS_WORD]


def batch_sentences(sentences: Iterable[Sentence], encode_words: EncodeWords) -> TokenBatch:
    """Encode tokenized sentences as one padded batch, which is empty if there are none."""
    rows = [add_boundaries(check_sentence(words, i)) for i, words in enumerate(sentences)]
    lengths = [len(row) for row in rows]
    ids = encode_words(list(chain.from_iterable(rows)))
    if not rows:
        return TokenBatch(ids.new_zeros(0, 2, *ids.shape[1:]), ids.new_zeros(0, 2).bool())
    padded = torch.nn.utils.rnn.pad_sequence(ids.split(lengths), batch_first=True)  # (B, T, *C)
    return TokenBatch(padded, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def check_sentence(words: Sentence, index: int, *, or_string: bool = False) -> Sentence:
    """Return the sentence; raise a `TypeError` with its index if it is not a list of strings.

    With `or_string`, the message says that the caller accepts a string, too.
    """
    if isinstance(words, str):
        # A string is a sequence of strings, too: each letter would silently become a token.
        raise TypeError(
            f"sentence {index} is a string ({words[:40]!r}); expected a list of tokens. "
            "Tokenize it first, for example with elmore.tokenize(sentence)."
        )
    if not isinstance(words, Sequence) or isinstance(words, bytes):
        kind = "None" if words is None else type(words).__name__
        expected = "a string, or a list of tokens" if or_string else "a list of tokens"
        raise TypeError(
            f"sentence {index} is {kind}; expected {expected} such as "
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
    """Yield groups of sentence indices, sorted by length, of up to `max_tokens` when padded.

    A sentence that is longer than `max_tokens` is a group of its own.
    """
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and lengths[index] * (len(group) + 1) > max_tokens:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def check_sentences(sentences: object) -> None:
    """Raise `TypeError` if iterating over the argument would not yield sentences."""
    if isinstance(sentences, str):
        raise TypeError(
            f"expected a list of sentences, got one string ({sentences[:40]!r}). "
            "Put it in a list: [sentence]."
        )
    if isinstance(sentences, PurePath):
        raise TypeError(
            f"expected a list of sentences, got the path {sentences}. To embed a file, use "
            "elmore.embed_file."
        )
    if isinstance(sentences, bytes) or not isinstance(sentences, Iterable):
        raise TypeError(f"expected a list of sentences, got {type(sentences).__name__}")
    if getattr(sentences, "ndim", 1) == 0:
        raise TypeError("expected a list of sentences, got an array without dimensions")
    if isinstance(sentences, Mapping) or hasattr(sentences, "columns"):  # yields names of columns
        raise TypeError(
            f"expected a list of sentences, got a {type(sentences).__name__}. Pass the column "
            'that has the text, for example elmo.embed(table["text"]).'
        )
