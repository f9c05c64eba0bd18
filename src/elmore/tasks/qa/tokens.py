"""Text to tokens that know where they are: `It's $5-10.` -> It 's $ 5 - 10 .

Words and clitics are those of Moses, which the biLM was trained on. But hyphens, slashes and
symbols are tokens of their own, since an answer may begin or end there.

T tokens.
"""

import re
import sys
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

_LETTER = r"[^\W\d_]"
_TOKEN = re.compile(
    rf"""
      \b(?:Mr|Mrs|Ms|Dr|Prof|St|Gen|Col|Capt|Lt|Sgt|Rev|Sen|Gov)\.(?=\s)
    | \b(?:{_LETTER}\.){{2,}}          # U.S.
    | \d+(?:[.,]\d+)+                  # 1,234.5
    | (?<=[^\W_])['\u2019]{_LETTER}+   # 's, 't, 'Brien
    | [^\W_]+
    | \.{{2,}} | -{{2,}}
    | \S
    """,
    re.VERBOSE,
)


class Tokens(NamedTuple):
    """A text and its tokens."""

    text: str
    words: list[str]
    starts: Int32[np.ndarray, " T"]
    """Where each token begins in the text."""

    ends: Int32[np.ndarray, " T"]
    """Where it ends: the character after its last."""

    def cut(self, length: int) -> "Tokens":
        """Return the first tokens; all of them are the same object."""
        if length >= len(self.words):
            return self
        return Tokens(self.text, self.words[:length], self.starts[:length], self.ends[:length])

    def cover(self, start: int, end: int) -> tuple[int, int]:
        """Return the fewest tokens, first and after the last, that hold some characters."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        return first, int(np.searchsorted(self.starts, end, side="left"))

    def place(self, first: int, last: int) -> tuple[int, int]:
        """Return the characters, first and after the last, of some tokens."""
        return int(self.starts[first]), int(self.ends[last - 1])

    def slice(self, first: int, last: int) -> str:
        """Return the text of some tokens, with what is between them."""
        start, end = self.place(first, last)
        return self.text[start:end]


def tokenize(text: str) -> Tokens:
    """Split a text into tokens."""
    found = list(_TOKEN.finditer(text))
    return Tokens(
        text,
        [sys.intern(match[0]) for match in found],  # a text repeats its words
        np.array([match.start() for match in found], np.int32),
        np.array([match.end() for match in found], np.int32),
    )
