"""CoNLL columns to sentences with entities: the word in the first column, its tag in the last."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.tasks.columns import Row, read_sentences
from elmore.tasks.spans import LabeledSpan, decode_tags, is_tag


class NerExample(NamedTuple):
    """A sentence and its entities."""

    tokens: list[str]
    entities: list[LabeledSpan]
    text: str = ""
    """The raw text, if the example was not read from a file of tokens."""


def read_entities(path: Path) -> list[NerExample]:
    """Read CoNLL columns with tags in IOB1, IOB2 or BIOES; blank lines separate sentences.

    Raises:
        InputError: If a line has no tag.
    """
    return [_read_sentence(path, rows) for rows in read_sentences(path)]


def _read_sentence(path: Path, rows: Sequence[Row]) -> NerExample:
    for number, columns in rows:
        if len(columns) < 2 or not columns[0] or not is_tag(columns[-1]):
            raise InputError(
                f"{path}, line {number}: expected a word and, in the last column, a tag such "
                f"as O, B-PER or I-PER, got {' '.join(columns)!r:.60}"
            )
    tokens, tags = ([row.columns[column] for row in rows] for column in (0, -1))
    return NerExample(tokens, decode_tags(tags))
