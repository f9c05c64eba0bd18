"""Words to vocabulary ids: targets of the language model, and input of word-input models.

A vocabulary file has one word per line: `<S>`, `</S>`, `<UNK>`, then words by decreasing frequency.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from elmore.errors import InputError
from elmore.text.lines import read_lines
from elmore.text.sentences import BOS_WORD, EOS_WORD

UNK_WORD = "<UNK>"
_END_OF_FILE = "!!!MAXTERMID"  # last line of the 1 Billion Word Benchmark's vocabulary; not a word


class Vocabulary:
    """An ordered set of words that includes `<S>`, `</S>` and `<UNK>`.

    Raises:
        InputError: If one of the three is missing, or a word is listed twice.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            duplicate = next(word for i, word in enumerate(self.words) if self._ids[word] != i)
            raise InputError(f"the vocabulary lists {duplicate!r} more than once")
        # bilm-tf accepts such a file, and then silently uses the vector of the last word.
        missing = [word for word in (BOS_WORD, EOS_WORD, UNK_WORD) if word not in self._ids]
        if missing:
            raise InputError(
                f"the vocabulary lacks {', '.join(missing)}; "
                "expected one word per line, including <S>, </S> and <UNK>"
            )
        self._unknown_id = self._ids[UNK_WORD]

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a vocabulary file. Raises `InputError` if it is not valid."""
        words = list(filter(None, map(str.strip, read_lines(path))))
        if words[-1:] == [_END_OF_FILE]:
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
        return word in self._ids

    def word_to_id(self, word: str) -> int:
        """Return the vocabulary id: the line number from 0, or that of `<UNK>`."""
        return self._ids.get(word, self._unknown_id)

    def encode_words(self, words: Sequence[str]) -> Int[Tensor, " N"]:
        """Return input ids: vocabulary ids plus 1, because 0 is padding."""
        return torch.tensor([self.word_to_id(word) + 1 for word in words], dtype=torch.int64)
