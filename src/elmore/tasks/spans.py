"""Spans of words, and labeled spans as tags: IOB1, IOB2 (BIO), BIOES.

U.N.   official  Ekeus  heads       LabeledSpan("ORG", 0, 1), LabeledSpan("PER", 2, 3)
I-ORG  O         I-PER  O           IOB1: B- only between adjacent spans with the same label
B-ORG  O         B-PER  O           IOB2: B- at every start
S-ORG  O         S-PER  O           BIOES: E- at the end, S- for a single word

B sentences, T words.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from elmore.errors import InputError
from elmore.tasks.offsets import token_offsets

Scheme = Literal["iob1", "iob2", "bioes"]
_ALIASES = {"L": "E", "U": "S"}  # BILOU is BIOES with other letters
_PREFIXES = {"B", "I", "E", "S", *_ALIASES}


class Span(NamedTuple):
    """Words from `start` up to, but not including, `end`."""

    start: int
    end: int


class LabeledSpan(NamedTuple):
    """A label of the words from `start` up to, but not including, `end`."""

    label: str
    start: int
    end: int


SpanProbabilities = dict[LabeledSpan, float]
"""Predicted spans and their probabilities."""


def decode_tags(tags: Sequence[str]) -> list[LabeledSpan]:
    """Convert tags of any of the three schemes to spans, as the CoNLL-2000 scorer does.

    Raises:
        InputError: If a string is not a tag.
    """
    spans: list[LabeledSpan] = []
    label, start = "", -1
    for position, tag in enumerate([*tags, "O"]):
        prefix, tag_label = _split_tag(tag)
        continues = start >= 0 and prefix in ("I", "E") and tag_label == label
        if start >= 0 and not continues:
            spans.append(LabeledSpan(label, start, position))
            start = -1
        if prefix and start < 0:
            label, start = tag_label, position
        if prefix in ("E", "S"):
            spans.append(LabeledSpan(label, start, position + 1))
            start = -1
    return spans


def encode_tags(spans: Iterable[LabeledSpan], length: int, scheme: Scheme) -> list[str]:
    """Convert spans that do not overlap to the tags of a sentence of `length` words."""
    tags = ["O"] * length
    for label, start, end in sorted(spans, key=lambda span: span.start):
        tags[start:end] = [f"I-{label}"] * (end - start)
        adjacent = start > 0 and tags[start - 1] != "O" and _split_tag(tags[start - 1])[1] == label
        if scheme != "iob1" or adjacent:
            tags[start] = f"B-{label}"
        if scheme == "bioes":
            tags[end - 1] = f"{'S' if end - start == 1 else 'E'}-{label}"
    return tags


def all_tags(labels: Iterable[str], scheme: Literal["iob2", "bioes"]) -> list[str]:
    """Return every tag that sorted `labels` have in a scheme, with O first."""
    prefixes = "BI" if scheme == "iob2" else "BIES"
    return ["O", *(f"{prefix}-{label}" for label in sorted(labels) for prefix in prefixes)]


def tag_ids(
    sentences: Sequence[Sequence[LabeledSpan]],
    lengths: Sequence[int],
    tags: Sequence[str],
    scheme: Scheme,
    *,
    padding: int,
) -> Int64[np.ndarray, "B T"]:
    """Return the indices of the tags in `tags`, padded to the longest sentence.

    Labels that are not in `tags`, because no training example has them, become O.
    """
    index = {tag: i for i, tag in enumerate(tags)}
    ids = np.full((len(sentences), max(1, *lengths)), padding)
    for row, spans, length in zip(ids, sentences, lengths, strict=True):
        row[:length] = [index.get(tag, 0) for tag in encode_tags(spans, length, scheme)]
    return ids


def may_follow_bioes(before: str | None, after: str | None) -> bool:
    """Whether `after` may follow `before` in BIOES; None is the boundary of a sentence."""
    inside = before is not None and before[0] in "BI"
    if after is None or after[0] not in "IE":
        return not inside  # a span must end before another begins
    return inside and before is not None and before[2:] == after[2:]


def may_follow_iob2(before: str | None, after: str | None) -> bool:
    """Whether `after` may follow `before` in IOB2; None is the boundary of a sentence."""
    if after is None or after[0] != "I":
        return True
    return before is not None and before != "O" and before[2:] == after[2:]


def is_tag(tag: str) -> bool:
    """Whether a string is a tag of one of the schemes."""
    return tag == "O" or (len(tag) > 2 and tag[0] in _PREFIXES and tag[1] == "-")


def _split_tag(tag: str) -> tuple[str, str]:
    if tag == "O":
        return "", ""
    if not is_tag(tag):
        raise InputError(f"expected a tag such as O, B-PER or I-PER, got {tag!r}")
    return _ALIASES.get(tag[0], tag[0]), tag[2:]


def spans_as_json(
    spans: Mapping[Span, float] | Mapping[LabeledSpan, float], tokens: Sequence[str], text: str
) -> list[dict[str, Any]]:
    """Return the fields of each span, its text, its character offsets and its probability.

    Args:
        spans: Spans with their probabilities.
        tokens: The tokens that the spans count.
        text: The text that the tokens were split from.
    """
    offsets = token_offsets(text, tokens)
    records = []
    for span, probability in spans.items():
        start, end = offsets[span.start][0], offsets[span.end - 1][1]
        records.append(
            {
                **span._asdict(),
                "text": text[start:end],
                "start_char": start,
                "end_char": end,
                "probability": probability,
            }
        )
    return records
