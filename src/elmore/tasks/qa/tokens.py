"""Text to tokens that know where they are: `It's $5-10.` -> It 's $ 5 - 10 .

Words and clitics are those of Moses, which the biLM was trained on. But hyphens, slashes and
symbols are tokens of their own, since an answer may begin or end there.

T tokens.
"""

import re
import sys
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from elmore.text.split import sentence_starts

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

    sentences: list[list[str]]
    """The tokens again, sentence by sentence."""

    def cut(self, length: int) -> "Tokens":
        """Return the first tokens; all of them are the same object."""
        if length >= len(self.words):
            return self
        before = accumulate(map(len, self.sentences), initial=0)
        parts = (s[: max(0, length - n)] for s, n in zip(self.sentences, before, strict=False))
        return Tokens(
            self.text,
            self.words[:length],
            self.starts[:length],
            self.ends[:length],
            [part for part in parts if part],
        )

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
    words = [sys.intern(match[0]) for match in found]  # a text repeats its words
    starts = np.array([match.start() for match in found], np.int32)
    bounds = np.searchsorted(starts, [0, *sentence_starts(text), len(text)]).tolist()
    return Tokens(
        text,
        words,
        starts,
        np.array([match.end() for match in found], np.int32),
        [words[first:last] for first, last in pairwise(bounds) if first < last],
    )
