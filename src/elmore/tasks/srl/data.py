"""CoNLL-2012 columns to frames: a predicate and its roles, `(ARG0*` `*` `*)` in the file."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.tasks.conll2012 import ROLES, WORD, Row, read_documents
from elmore.tasks.spans import Span
from elmore.tasks.treebank import unescape

PREDICATE = "V"
"""The label of the predicate itself."""

_CELL = re.compile(r"(?:\(([^()*\s]+))?\*(\))?")


class SrlExample(NamedTuple):
    """A sentence, one of its predicates, and the roles of the words around it."""

    tokens: list[str]
    predicate: int
    roles: list[Span]
    """The predicate's own span is among them, as V."""


def read_frames(path: Path) -> list[SrlExample]:
    """Read a file of CoNLL-2012 columns; a sentence gives an example for each predicate."""
    examples: list[SrlExample] = []
    for document in read_documents(path):
        for rows in document.sentences:
            tokens = [unescape(row.columns[WORD]) for row in rows]
            for column in range(ROLES, len(rows[0].columns) - 1):
                roles = _read_roles(path, rows, column)
                examples.append(SrlExample(tokens, _predicate(path, rows, column, roles), roles))
    return examples


def _read_roles(path: Path, rows: Sequence[Row], column: int) -> list[Span]:
    roles: list[Span] = []
    label, start = "", -1
    for position, (number, columns) in enumerate(rows):
        cell = columns[column]
        if cell == "*":  # most of them
            continue
        found = _CELL.fullmatch(cell)
        # A role begins where none is open, and ends where one is.
        if not found or bool(found[1]) == (start >= 0):
            raise InputError(
                f"{path}, line {number}, column {column + 1}: expected roles in brackets that do "
                f"not overlap, such as (ARG0*, *, *) or (V*), got {cell!r:.60}"
            )
        if found[1]:
            label, start = found[1], position
        if found[2]:
            roles.append(Span(label, start, position + 1))
            start = -1
    if start >= 0:
        raise InputError(
            f"{path}, line {rows[start].number}, column {column + 1}: {label} is not closed by "
            "*) before the end of the sentence"
        )
    return roles


def _predicate(path: Path, rows: Sequence[Row], column: int, roles: Sequence[Span]) -> int:
    # Not from the column of lemmas: there a predicate may have none, and other words one.
    found = [role.start for role in roles if role.label == PREDICATE]
    if len(found) != 1:
        raise InputError(
            f"{path}, line {rows[0].number}, column {column + 1}: expected one predicate, "
            f"({PREDICATE}*), in the roles of a sentence, found {len(found)}"
        )
    return found[0]
