"""CoNLL-2012 columns to predicates with their roles, written as `(ARG0*` `*` `*)` in a column."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.tasks.columns import Row
from elmore.tasks.conll2012 import ROLES, WORD, read_documents
from elmore.tasks.spans import LabeledSpan
from elmore.tasks.treebank import unescape

PREDICATE = "V"
"""The label of the predicate itself."""

_CELL = re.compile(r"(?:\(([^()*\s]+))?\*(\))?")


class SrlExample(NamedTuple):
    """A sentence, one of its predicates, and the roles of that predicate."""

    tokens: list[str]
    predicate: int
    roles: list[LabeledSpan]
    """Includes the span of the predicate itself, with the label V."""

    text: str = ""
    """The raw text, if the example was not read from a file of tokens."""


def read_frames(path: Path) -> list[SrlExample]:
    """Read CoNLL-2012 columns; each predicate of a sentence is one example.

    Raises:
        InputError: If brackets do not match, or a column of roles has no predicate.
    """
    examples: list[SrlExample] = []
    for document in read_documents(path):
        for rows in document.sentences:
            tokens = [unescape(row.columns[WORD]) for row in rows]
            for column in range(ROLES, len(rows[0].columns) - 1):
                roles = _read_roles(path, rows, column)
                examples.append(SrlExample(tokens, _predicate(path, rows, column, roles), roles))
    return examples


def _read_roles(path: Path, rows: Sequence[Row], column: int) -> list[LabeledSpan]:
    roles: list[LabeledSpan] = []
    label, start = "", -1
    for position, (number, columns) in enumerate(rows):
        cell = columns[column]
        if cell == "*":  # most cells
            continue
        match = _CELL.fullmatch(cell)
        # A role must start outside of any role and end inside of one.
        if not match or bool(match[1]) == (start >= 0):
            raise InputError(
                f"{path}, line {number}, column {column + 1}: expected roles in brackets that do "
                f"not overlap, such as (ARG0*, *, *) or (V*), got {cell!r:.60}"
            )
        if match[1]:
            label, start = match[1], position
        if match[2]:
            roles.append(LabeledSpan(label, start, position + 1))
            start = -1
    if start >= 0:
        raise InputError(
            f"{path}, line {rows[start].number}, column {column + 1}: {label} is not closed by "
            "*) before the end of the sentence"
        )
    return roles


def _predicate(path: Path, rows: Sequence[Row], column: int, roles: Sequence[LabeledSpan]) -> int:
    # Not from the lemma column: some predicates have no lemma there, and some other words do.
    positions = [role.start for role in roles if role.label == PREDICATE]
    if len(positions) != 1:
        raise InputError(
            f"{path}, line {rows[0].number}, column {column + 1}: expected one predicate, "
            f"({PREDICATE}*), in the roles of a sentence, found {len(positions)}"
        )
    return positions[0]
