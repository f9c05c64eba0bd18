"""Text to tokens with character offsets: `It's $5-10.` -> It 's $ 5 - 10 .

Words and clitics are split as Moses does, which the biLM was trained on. Hyphens, slashes and
symbols are separate tokens, because an answer may start or end there.

T tokens.
"""

import re
import sys
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from elmore.tasks.spans import Span
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
    """Character offset of the start of each token."""

    ends: Int32[np.ndarray, " T"]
    """Character offset after the end of each token."""

    sentences: list[list[str]]
    """The same tokens, grouped by sentence."""

    def truncate(self, length: int) -> "Tokens":
        """Return the first `length` tokens; `self` if there are no more than that."""
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

    def cover(self, start: int, end: int) -> Span:
        """Return the smallest span of tokens that covers the characters from start to end."""
        return Span(
            int(np.searchsorted(self.ends, start, side="right")),
            int(np.searchsorted(self.starts, end, side="left")),
        )

    def offsets(self, span: Span) -> tuple[int, int]:
        """Return the character offsets of the start and the end of a span."""
        return int(self.starts[span.start]), int(self.ends[span.end - 1])

    def text_of(self, span: Span) -> str:
        """Return the text of a span, including the space between its tokens."""
        start, end = self.offsets(span)
        return self.text[start:end]


def tokenize(text: str) -> Tokens:
    """Split a text into tokens and sentences."""
    matches = list(_TOKEN.finditer(text))
    words = [sys.intern(match[0]) for match in matches]  # words repeat, so this saves memory
    starts = np.array([match.start() for match in matches], np.int32)
    bounds = np.searchsorted(starts, [0, *sentence_starts(text), len(text)]).tolist()
    return Tokens(
        text,
        words,
        starts,
        np.array([match.end() for match in matches], np.int32),
        [words[first:last] for first, last in pairwise(bounds) if first < last],
    )
