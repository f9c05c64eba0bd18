"""Reader of CoNLL-2012 files: documents of sentences, with one row of columns per word.

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
from elmore.tasks.columns import Row, split_columns
from elmore.text.lines import read_lines

WORD, ROLES = 3, 11
"""Columns of the word and of the first predicate's roles.

There is one column of roles per predicate. The last column is coreference.
"""

_BEGIN, _END = "#begin document", "#end document"


class Document(NamedTuple):
    """A document, or one part of it."""

    name: str
    """The text after `#begin document`, including the part."""

    sentences: list[list[Row]]


def read_documents(path: Path) -> Iterator[Document]:
    """Yield the documents of a file, with columns separated by spaces or tabs.

    Raises:
        InputError: If a line has too few columns, or not as many as the first line of its sentence.
    """
    document = Document("", [])
    sentence: list[Row] = []
    for number, line in enumerate(chain(read_lines(path), [_END]), 1):
        if line.strip() and not line.startswith((_BEGIN, _END)):
            sentence.append(Row(number, _columns(path, number, line, sentence)))
            continue
        if sentence:
            document.sentences.append(sentence)
            sentence = []
        if not line.strip():
            continue
        if document.sentences:
            yield document
        document = Document(line.removeprefix(_BEGIN).strip(), [])


def _columns(path: Path, number: int, line: str, sentence: list[Row]) -> list[str]:
    columns = split_columns(line)
    if len(columns) <= ROLES:
        raise InputError(
            f"{path}, line {number}: expected at least {ROLES + 1} columns of CoNLL-2012, with "
            f"the word in column {WORD + 1}, got {len(columns)}: {line!r:.60}"
        )
    if sentence and len(columns) != len(sentence[0].columns):
        raise InputError(
            f"{path}, line {number}: expected {len(sentence[0].columns)} columns, as in the "
            f"first line of the sentence, got {len(columns)}"
        )
    return columns
