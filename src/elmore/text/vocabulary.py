"""Words by number: targets of the language model, and input of word-input models.

A vocabulary file has one word a line: `<S>`, `</S>`, `<UNK>`, then words by falling frequency.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from elmore.errors import InputError
from elmore.text.lines import read_lines
from elmore.text.sentences import BOS_WORD, EOS_WORD, Sentence, TokenBatch, batch_sentences

UNK_WORD = "<UNK>"
_NOT_A_WORD = "!!!MAXTERMID"  # the 1 Billion Word Benchmark's vocabulary ends with this line


class Vocabulary:
    """An ordered set of words that holds the two boundaries and the unknown word."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self._number = {word: i for i, word in enumerate(self.words)}
        if len(self._number) < len(self.words):
            twice = next(word for i, word in enumerate(self.words) if self._number[word] != i)
            raise InputError(f"the vocabulary lists {twice!r} more than once")
        # Without these the peers fall back on index -1: the last word's vector, silently.
        missing = [word for word in (BOS_WORD, EOS_WORD, UNK_WORD) if word not in self._number]
        if missing:
            raise InputError(
                f"the vocabulary lacks {', '.join(missing)}; "
                "expected <S>, </S> and <UNK> among its words, one a line"
            )
        self._unknown = self._number[UNK_WORD]

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a vocabulary file."""
        words = list(filter(None, map(str.strip, read_lines(path))))
        if words[-1:] == [_NOT_A_WORD]:
            del words[-1]
        try:
            return cls(words)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def write(self, path: Path) -> None:
        """Write a vocabulary file."""
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._number

    def number(self, word: str) -> int:
        """Return a word's line in the file, counted from 0; that of `<UNK>` if it has none."""
        return self._number.get(word, self._unknown)

    def encode_words(self, words: Sequence[str]) -> Int[Tensor, " N"]:
        """Return the input ids of words: their number + 1, for 0 means "no token here"."""
        return torch.tensor([self.number(word) + 1 for word in words], dtype=torch.int64)

    def encode_sentences(self, sentences: Iterable[Sentence]) -> TokenBatch:
        """Encode tokenized sentences as one padded batch of word ids."""
        return batch_sentences(sentences, self.encode_words)
