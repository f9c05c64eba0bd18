"""Character offsets of tokens in the text they were split from."""

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple


class _Character(NamedTuple):
    """A visible character, and the part of the text that it stands for."""

    value: str
    start: int
    end: int


def token_offsets(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return the start and end of each token in `text`.

    A tokenizer may change characters: it may compose a letter and its accent, or turn -LRB- into a
    parenthesis. Such characters stand for the part of the text between their neighbors.
    """
    tokens = ["".join(token.split()) for token in tokens]  # a token of a table may have spaces
    found = _align(text, "".join(tokens))
    offsets = []
    first = 0
    for token in tokens:
        last = first + len(token)
        known = [character for character in found[first:last] if character]
        if len(known) == len(token) > 0:
            offsets.append((known[0].start, known[-1].end))
        else:
            before = next((c.end for c in reversed(found[:first]) if c), 0)
            after = next((c.start for c in found[last:] if c), len(text))
            offsets.append(_span(text, found[first:last], before, after))
        first = last
    return offsets


def _align(text: str, characters: str) -> list[_Character | None]:
    """Return for each of the characters its place in the text; None if it is not there."""
    visible = [_Character(c, i, i + 1) for i, c in enumerate(text) if not c.isspace()]
    if "".join(c.value for c in visible) == characters:  # nearly always
        return list(visible)
    visible = _compose(visible)
    aligned: list[_Character | None] = [None] * len(characters)
    source = "".join(c.value for c in visible)
    matcher = SequenceMatcher(None, characters, source, autojunk=False)
    for first, other, size in matcher.get_matching_blocks():
        aligned[first : first + size] = visible[other : other + size]
    return aligned


def _compose(characters: Sequence[_Character]) -> list[_Character]:
    """Apply NFC: join characters that compose, such as a letter and its accent."""
    composed: list[_Character] = []
    for value, start, end in characters:
        if composed and composed[-1].end == start:
            joined = unicodedata.normalize("NFC", composed[-1].value + value)
            if len(joined) == 1:
                composed[-1] = _Character(joined, composed[-1].start, end)
                continue
        composed.append(_Character(value, start, end))
    return composed


def _span(
    text: str, characters: Sequence[_Character | None], before: int, after: int
) -> tuple[int, int]:
    """Return the span of a token, given the end and the start of its neighbors."""
    known = [character for character in characters if character]
    if not known:
        between = text[before:after]
        start = before + len(between) - len(between.lstrip())
        return start, max(start, before + len(between.rstrip()))
    start, end = known[0].start, known[-1].end
    if not characters[0]:
        while start > before and not text[start - 1].isspace():
            start -= 1
    if not characters[-1]:
        while end < after and not text[end].isspace():
            end += 1
    return start, end
