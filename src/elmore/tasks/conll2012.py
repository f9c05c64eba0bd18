"""Files of the CoNLL-2012 shared task to documents: columns of sentences, as they are there.

#begin document (bc/cnn/00/cnn_0000); part 000
bc/cnn/00/cnn_0000  0  0  She   PRP ...  -     -   ...  (ARG0*)  (12)
bc/cnn/00/cnn_0000  0  1  gave  VBD ...  give  01  ...  (V*)     -

#end document
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.text.lines import read_lines

WORD, ROLES = 3, 11
"""Columns: the word, and the first of the roles, one column a predicate. Coreference is last."""

_BEGIN, _END = "#begin document", "#end document"


class Row(NamedTuple):
    """A word: the number of its line, for messages, and its columns."""

    number: int
    columns: list[str]


class Document(NamedTuple):
    """A part of a text, under the name that it has in the file."""

    name: str
    sentences: list[list[Row]]


def read_documents(path: Path) -> Iterator[Document]:
    """Yield the documents of a file; columns are separated by spaces or by tabs."""
    document = Document("", [])
    sentence: list[Row] = []
    for number, line in enumerate(chain(read_lines(path), [_END]), 1):
        if line.strip() and not line.startswith((_BEGIN, _END)):
            sentence.append(Row(number, _columns(path, number, line, sentence)))
            continue
        if sentence:
            document.sentences.append(sentence)
            sentence = []
        if line.strip() and document.sentences:
            yield document
        if line.strip():
            document = Document(line.removeprefix(_BEGIN).strip(), [])


def _columns(path: Path, number: int, line: str, sentence: list[Row]) -> list[str]:
    # Tabs where there are any: a column may then hold a space.
    columns = [c.strip() for c in line.split("\t")] if "\t" in line else line.split()
    if len(columns) <= ROLES:
        raise InputError(
            f"{path}, line {number}: expected the columns of CoNLL-2012, at least {ROLES + 1} "
            f"with the word in column {WORD + 1}, got {len(columns)}: {line!r:.60}"
        )
    if sentence and len(columns) != len(sentence[0].columns):
        raise InputError(
            f"{path}, line {number}: expected {len(sentence[0].columns)} columns, as in the "
            f"first line of the sentence, got {len(columns)}"
        )
    return columns
