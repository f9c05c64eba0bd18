"""Labeled spans of words, as tags and back: IOB1, IOB2, BIOES.

U.N.   official  Ekeus  heads       [ORG 0:1] [PER 2:3]
I-ORG  O         I-PER  O           IOB1: B- only where two spans of a kind meet
B-ORG  O         B-PER  O           IOB2: B- at every start
S-ORG  O         S-PER  O           BIOES: E- at the end, S- for a single word
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from elmore.errors import InputError

Scheme = Literal["iob1", "iob2", "bioes"]
_PREFIXES = "BIESLU"  # L and U are other names of E and S


class Span(NamedTuple):
    """Words from `start` up to, not including, `end`."""

    label: str
    start: int
    end: int


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Read tags of any of the three schemes, as the scorer of CoNLL-2000 does."""
    spans: list[Span] = []
    kind, begin = "", -1
    for position, tag in enumerate([*tags, "O"]):
        prefix, label = _split(tag)
        goes_on = prefix in ("I", "E") and label == kind and begin >= 0
        if begin >= 0 and not goes_on:
            spans.append(Span(kind, begin, position))
            begin = -1
        if prefix and begin < 0:
            kind, begin = label, position
        if prefix in ("E", "S"):
            spans.append(Span(kind, begin, position + 1))
            begin = -1
    return spans


def tags_of(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Write spans that do not overlap as tags."""
    tags = ["O"] * length
    for label, start, end in sorted(spans, key=lambda span: span.start):
        tags[start:end] = [f"I-{label}"] * (end - start)
        meets = start > 0 and tags[start - 1] != "O" and _split(tags[start - 1])[1] == label
        if scheme != "iob1" or meets:
            tags[start] = f"B-{label}"
        if scheme == "bioes":
            tags[end - 1] = f"{'S' if end - start == 1 else 'E'}-{label}"
    return tags


def may_follow(before: str | None, after: str | None) -> bool:
    """Whether a tag may come after another in BIOES; None is the edge of a sentence."""
    opened = before is not None and before[0] in "BI"
    if after is None or after[0] not in "IE":
        return not opened  # a span that has begun must go on
    return opened and before is not None and before[2:] == after[2:]


def may_follow_iob2(before: str | None, after: str | None) -> bool:
    """Whether a tag may come after another in IOB2: only I- asks for something."""
    if after is None or after[0] != "I":
        return True
    return before is not None and before != "O" and before[2:] == after[2:]


def is_tag(tag: str) -> bool:
    """Whether a string is a tag of one of the schemes."""
    return tag == "O" or (len(tag) > 2 and tag[0] in _PREFIXES and tag[1] == "-")


def _split(tag: str) -> tuple[str, str]:
    if tag == "O":
        return "", ""
    if not is_tag(tag):
        raise InputError(f"expected a tag such as O, B-PER or I-PER, got {tag!r}")
    return {"L": "E", "U": "S"}.get(tag[0], tag[0]), tag[2:]


def span_f1(
    gold: Iterable[Iterable[Hashable]], found: Iterable[Iterable[Hashable]]
) -> dict[str, float]:
    """Return precision, recall and F1 of spans over all sentences; a span is right or wrong."""
    right = given = wanted = 0
    for ours, theirs in zip(map(set, found), map(set, gold), strict=True):
        right += len(ours & theirs)
        given += len(ours)
        wanted += len(theirs)
    precision, recall = right / max(given, 1), right / max(wanted, 1)
    return {
        "f1": 2 * right / max(given + wanted, 1),
        "precision": precision,
        "recall": recall,
    }
