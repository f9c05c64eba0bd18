"""Files in CoNLL columns: one word per line, a blank line after each sentence."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from elmore.text.lines import read_lines


class Row(NamedTuple):
    """A word and its annotations."""

    number: int
    """Line number, for error messages."""

    columns: list[str]


def read_sentences(path: Path) -> Iterator[list[Row]]:
    """Yield the sentences of a file; `-DOCSTART-` lines are skipped."""
    sentence: list[Row] = []
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
        if line.strip() and not line.startswith("-DOCSTART-"):
            sentence.append(Row(number, split_columns(line)))
        elif sentence:
            yield sentence
            sentence = []


def split_columns(line: str) -> list[str]:
    """Split a line at tabs or, if there are none, at spaces.

    Between tabs, a column may contain spaces. No-break spaces and the like are part of a word.
    """
    if "\t" in line:
        return [column.strip(" ") for column in line.split("\t")]
    return [column for column in line.split(" ") if column]
