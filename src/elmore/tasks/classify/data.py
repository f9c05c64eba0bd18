"""Labeled texts in TSV, CSV or JSON lines.

positive<TAB>It works.                   TSV: a label and a text, in any order with a header
label,text                               CSV: a header, then rows; fields may be quoted
{"label": "positive", "text": "..."}     JSON lines
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmore.errors import InputError
from elmore.tasks.json_input import parse_json
from elmore.tasks.treebank import treebank_tokens
from elmore.text.lines import read_lines
from elmore.text.tokenize import Tokenizer

_TEXT_COLUMNS = ("text", "sentence", "document", "review")
_LABEL_COLUMNS = ("label", "labels", "class", "category")


class ClassifyExample(NamedTuple):
    """A text and its labels: one, or any number in multi-label classification."""

    tokens: list[str]
    labels: list[str]
    text: str = ""
    """The raw text."""


class LabeledText(NamedTuple):
    """A row of a file."""

    number: int
    """Line number, for error messages."""

    label: Any
    """A string; in JSON lines, any value."""

    text: str


def read_examples(
    path: Path,
    tokenize: Tokenizer,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    separator: str | None = None,
) -> list[ClassifyExample]:
    """Read labeled texts; rows without a text are skipped.

    Args:
        path: The file; see `read_labeled_texts`.
        tokenize: Tokenizer of the texts.
        text_column: Name of the column of the texts.
        label_column: Name of the column of the labels.
        separator: Separator of several labels of a text; None if each text has one label.

    Raises:
        InputError: If a row has no label, or one that is neither a string nor an integer.
    """
    examples = []
    for number, label, text in read_labeled_texts(path, text_column, label_column):
        try:
            labels = _parse_label(label, separator)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        if tokens := treebank_tokens(text, tokenize):
            examples.append(ClassifyExample(tokens, labels, text))
    return examples


def _parse_label(label: Any, separator: str | None) -> list[str]:
    """Return the labels of a text, without duplicates if there are several."""
    if separator is None:
        return [_label_name(label)]
    if label is None:
        return []
    if isinstance(label, str):
        label = [part.strip() for part in label.split(separator) if part.strip()]
    return list(dict.fromkeys(map(_label_name, label if isinstance(label, list) else [label])))


def _label_name(label: Any) -> str:
    if isinstance(label, list):
        raise InputError(
            f"expected one label, got a list; for texts with several labels, set "
            f"data.multi_label=true ({label!r:.60})"
        )
    if not isinstance(label, str | int) or (name := str(label).strip()) == "":
        raise InputError(f"expected a label, which is a string or an integer, got {label!r:.60}")
    return name


def read_labeled_texts(
    path: Path, text_column: str | None = None, label_column: str | None = None
) -> Iterator[LabeledText]:
    """Yield the rows of a file that have a text.

    A file whose name ends in `.csv` is CSV. Otherwise, it is JSON lines if the first line starts
    with a brace, or else TSV, in which quotes have no special meaning. If the first row of a table
    names the columns of texts and labels, it is a header. Without a header, the first column is the
    label and the second the text.

    Args:
        path: The file, optionally compressed.
        text_column: Name of the column, or JSON key, of the texts; by default the first of text,
            sentence, document and review that is there.
        label_column: The same for the labels: label, labels, class or category.

    Raises:
        InputError: If a row does not have these columns.
    """
    names = _Names(
        (label_column,) if label_column else _LABEL_COLUMNS,
        (text_column,) if text_column else _TEXT_COLUMNS,
    )
    lines = [(n, line) for n, line in enumerate(read_lines(path), 1) if line.strip()]
    if ".csv" in map(str.lower, path.suffixes[-2:]):
        rows = _read_table(path, _split_csv(path), names)
    elif lines and lines[0][1].lstrip().startswith("{"):
        rows = _read_json_lines(path, lines, names)
    else:
        rows = _read_table(path, ((n, line.split("\t")) for n, line in lines), names)
    for row in rows:
        if row.text.strip():
            yield row


class _Names(NamedTuple):
    """Possible names of the two columns; the first that is there is used."""

    label: Sequence[str]
    text: Sequence[str]

    def find(self, columns: Iterable[str]) -> list[str]:
        """Return the names of the label and of the text, or nothing if one is not there."""
        there = set(columns)
        found = [name for names in self if (name := next(filter(there.__contains__, names), ""))]
        return found if len(found) == len(self) else []

    def __str__(self) -> str:
        label, text = (" or ".join(names) for names in self)
        return f"a label ({label}) and a text ({text})"


_DEFAULT_NAMES = _Names(_LABEL_COLUMNS, _TEXT_COLUMNS)


def _split_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not CSV ({error})") from error


def _read_table(
    path: Path, rows: Iterable[tuple[int, list[str]]], names: _Names
) -> Iterator[LabeledText]:
    header: list[int] = []
    for i, (number, cells) in enumerate(rows):
        try:
            if i == 0 and (header := _parse_header(cells, names)):
                continue
            if header and len(cells) <= max(header):
                raise InputError("expected the columns of the header")
            if not header and len(cells) != 2:
                raise InputError(
                    f"expected a label, a tab and a text, or a header with columns for {names}"
                )
        except InputError as error:
            raise InputError(
                f"{path}, line {number}: {error}, got {' '.join(cells)!r:.60}"
            ) from error
        label, text = (cells[column] for column in header or (0, 1))
        yield LabeledText(number, label, text)


def _parse_header(cells: Sequence[str], names: _Names) -> list[int]:
    """Return the columns of label and text in a header, or nothing if it is not a header."""
    known = {*names.label, *names.text}
    header = [name if name in known else name.lower() for name in map(str.strip, cells)]
    columns = [header.index(name) for name in names.find(header)]
    if not columns and (names != _DEFAULT_NAMES or not known.isdisjoint(header)):
        raise InputError(f"expected a header with columns for {names}")
    return columns


def _read_json_lines(
    path: Path, lines: Iterable[tuple[int, str]], names: _Names
) -> Iterator[LabeledText]:
    for number, line in lines:
        try:
            row = parse_json(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        columns = names.find(row) if isinstance(row, dict) else []
        if not columns or not isinstance(row[columns[1]], str):
            raise InputError(
                f"{path}, line {number}: expected a JSON object with {names}, got {line!r:.60}"
            )
        yield LabeledText(number, *(row[column] for column in columns))
