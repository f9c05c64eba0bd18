"""CoNLL columns to sentences with one tag per word.

1<TAB>Dogs<TAB>dog<TAB>NOUN<TAB>NNS...     CoNLL-U: the word in column 2, ten columns
Dogs NNS I-NP                              other files: the word in column 1, the tag in the last
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.tasks.columns import Row, read_sentences

CONLLU_COLUMNS = (
    "id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc",
)  # fmt: skip
_ID = re.compile(r"\d+([-.]\d+)?")
_WORD_ID = re.compile(r"\d+")  # 3-4 is a multiword token of words 3 and 4; 3.1 is an empty node


class TagExample(NamedTuple):
    """A sentence and the tag of each word."""

    tokens: list[str]
    tags: list[str]
    text: str = ""
    """The raw text, if the example was not read from a file of tokens."""


def read_tags(
    path: Path, *, column: str | int | None = None, word_column: int | None = None
) -> list[TagExample]:
    """Read CoNLL columns; blank lines separate sentences.

    A file is CoNLL-U if its first word has ten columns, the first of which is a word id. Its
    comments, multiword tokens and empty nodes are skipped.

    Args:
        path: The file, optionally compressed.
        column: Column of the tags: a number, counted from 1, or a name in `CONLLU_COLUMNS`; by
            default `upos` in CoNLL-U, and the last column otherwise.
        word_column: Column of the words; by default 2 in CoNLL-U, and 1 otherwise.

    Raises:
        InputError: If a line has no word or no tag, or a name is given for a column of a file that
            is not CoNLL-U. In `upos` and `xpos`, `_` means that there is no tag.
    """
    sentences = list(read_sentences(path))
    is_conllu = _is_conllu(sentences)
    if is_conllu:
        sentences = [words for rows in sentences if (words := _conllu_words(path, rows))]
    if column is None and is_conllu:
        column = "upos"
    if isinstance(column, str):
        if not is_conllu:
            raise InputError(
                f"{path}: the column {column!r} exists in CoNLL-U files only, which have ten "
                "columns; give the number of the column, counted from 1"
            )
        if column in ("upos", "xpos"):
            _require_tags(path, sentences, column)
        column = CONLLU_COLUMNS.index(column) + 1
    word_column = word_column or (2 if is_conllu else 1)
    return [_read_sentence(path, rows, word_column, column) for rows in sentences]


def _is_conllu(sentences: Sequence[Sequence[Row]]) -> bool:
    words = (row.columns for rows in sentences for row in rows if not _is_comment(row))
    first = next(words, None)  # None if there are only comments
    return first is None or (len(first) == len(CONLLU_COLUMNS) and bool(_ID.fullmatch(first[0])))


def _is_comment(row: Row) -> bool:
    return row.columns[0].startswith("#")


def _conllu_words(path: Path, rows: Sequence[Row]) -> list[Row]:
    rows = [row for row in rows if not _is_comment(row)]
    for number, columns in rows:
        if len(columns) != len(CONLLU_COLUMNS) or not _ID.fullmatch(columns[0]):
            raise InputError(
                f"{path}, line {number}: expected a word id and nine more columns separated by "
                f"tabs (CoNLL-U), got {' '.join(columns)!r:.60}"
            )
    return [row for row in rows if _WORD_ID.fullmatch(row.columns[0])]


def _require_tags(path: Path, sentences: Sequence[Sequence[Row]], column: str) -> None:
    for rows in sentences:
        for number, columns in rows:
            if columns[CONLLU_COLUMNS.index(column)] == "_":
                other = "upos" if column == "xpos" else "xpos"
                raise InputError(
                    f"{path}, line {number}: {columns[1]!r} has no {column} tag; try {other}"
                )


def _read_sentence(
    path: Path, rows: Sequence[Row], word_column: int, column: int | None
) -> TagExample:
    """Convert the rows of a sentence; the tag is in the last column if `column` is None."""
    tokens, tags = [], []
    for number, columns in rows:
        tag_column = column or max(len(columns), word_column + 1)
        if not all(columns[n - 1 : n] and columns[n - 1] for n in (word_column, tag_column)):
            where = f"column {column}" if column else "the last column"
            raise InputError(
                f"{path}, line {number}: expected a word in column {word_column} and its tag in "
                f"{where}, got {' '.join(columns)!r:.60}"
            )
        tokens.append(columns[word_column - 1])
        tags.append(columns[tag_column - 1])
    return TagExample(tokens, tags)
