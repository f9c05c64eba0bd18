"""Character offsets of tokens in the text they were split from."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate


def token_offsets(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return the start and end of each token in `text`.

    A tokenizer may change characters, such as -LRB- to a parenthesis. A token of which no
    character is found covers the text between its neighbors.
    """
    offsets: list[tuple[int, int] | None] = []
    position = _character_positions(text, "".join(tokens))
    starts = accumulate(map(len, tokens), initial=0)
    for token, start in zip(tokens, starts, strict=False):
        found = [at for at in position[start : start + len(token)] if at is not None]
        offsets.append((found[0], found[-1] + 1) if found else None)
    return [span or _gap(text, offsets, i) for i, span in enumerate(offsets)]


def _character_positions(text: str, characters: str) -> list[int | None]:
    """Return the position of each character in the text; None if it is not there."""
    source = [at for at, character in enumerate(text) if not character.isspace()]
    visible = "".join(text[at] for at in source)
    if visible == characters:  # nearly always
        return list(source)
    positions: list[int | None] = [None] * len(characters)
    matcher = SequenceMatcher(None, characters, visible, autojunk=False)
    for ours, theirs, size in matcher.get_matching_blocks():
        positions[ours : ours + size] = source[theirs : theirs + size]
    return positions


def _gap(text: str, offsets: Sequence[tuple[int, int] | None], index: int) -> tuple[int, int]:
    """Return the part of the text between the nearest tokens with known offsets."""
    start = next((span[1] for span in reversed(offsets[:index]) if span), 0)
    end = next((span[0] for span in offsets[index + 1 :] if span), len(text))
    between = text[start:end]
    start += len(between) - len(between.lstrip())
    return start, max(start, end - len(between) + len(between.rstrip()))
