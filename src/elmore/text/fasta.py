"""FASTA files to protein sequences, one letter per residue.

>sp|P69905|HBA_HUMAN Hemoglobin subunit alpha     a header: `>`, an id, a description
MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTK         residues, on any number of lines
TYFPHFDLSHGSAQ
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.text.lines import read_lines

MAX_ID = 1000
"""Maximum characters of an id. A longer one is taken for a file that is not FASTA."""
UNKNOWN = "X"
"""The letter of an unknown residue."""
_NOT_RESIDUE = re.compile("[^A-Za-z]")


class Protein(NamedTuple):
    """A protein: its id, its residues in upper case, and the line of its header."""

    id: str
    sequence: str
    line: int


def read_fasta(
    path: Path,
    *,
    id_field: int | None = None,
    split_char: str = "|",
    replace_invalid: bool = False,
) -> Iterator[Protein]:
    """Yield the proteins of a FASTA file in order; their ids are distinct.

    Lower-case letters become upper case. White space and blank lines are ignored.

    Args:
        path: FASTA file, optionally `.gz`, `.xz`, `.bz2` or `.zst`; `-` is standard input.
        id_field: See `select_id`.
        split_char: See `select_id`.
        replace_invalid: Replace characters that are not letters, such as `*` and `-`, with `X`, the
            unknown residue, instead of raising an error.

    Raises:
        InputError: With the line number, if the file is not FASTA, an id is missing or repeated,
            or a sequence is empty or has characters that are not residues.
    """
    lines_of_ids: dict[str, int] = {}
    header: tuple[str, int] | None = None
    parts: list[str] = []
    for number, line in enumerate(read_lines(path, replace_invalid=replace_invalid), start=1):
        if line.startswith(">"):
            if header is not None:
                yield _protein(path, *header, parts)
            try:
                name = select_id(line[1:], id_field, split_char)
            except InputError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
            if name in lines_of_ids:
                raise InputError(
                    f"{path}, line {number}: the id {name!r} repeats that of line "
                    f"{lines_of_ids[name]}. Ids must be distinct: rename one, or choose another "
                    "field of the headers."
                )
            lines_of_ids[name] = number
            header, parts = (name, number), []
            continue
        residues = "".join(line.split())
        if residues and header is None:
            raise InputError(
                f"{path}, line {number}: expected a header that starts with '>', got "
                f"{line[:40]!r}. Is this a FASTA file?"
            )
        parts.append(_check_residues(residues, path, number, replace_invalid))
    if header is None:
        raise InputError(f"{path} has no proteins; expected a FASTA file")
    yield _protein(path, *header, parts)


def select_id(header: str, id_field: int | None, split_char: str) -> str:
    """Return the id in a header.

    Args:
        header: The line after its `>`.
        id_field: The number of a field, from 0, of the header split at `split_char`; -1 for the
            whole header. By default the first word.
        split_char: Separates the fields.

    Raises:
        InputError: If the header has no such field, or it is empty.
    """
    header = header.strip()
    if id_field is None:
        name = header.split(maxsplit=1)[0] if header else ""
    elif id_field == -1:
        name = header
    else:
        fields = header.split(split_char)
        if id_field >= len(fields):
            raise InputError(
                f"no field {id_field} in the header {header[:60]!r}, split at {split_char!r} and "
                "counted from 0. Choose another field or separator."
            )
        name = fields[id_field].strip()
    if not name:
        raise InputError(f"no id in the header {header[:60]!r}")
    if len(name) > MAX_ID:
        raise InputError(f"an id of {len(name):,} characters; expected up to {MAX_ID:,}")
    return name


def check_id_options(id_field: int | None, split_char: str) -> None:
    """Raise `InputError` unless `select_id` takes these arguments."""
    if id_field is not None and id_field < -1:
        raise InputError(
            f"id_field must be a number from 0, or -1 for the whole header, got {id_field}"
        )
    if not split_char:
        raise InputError("split_char is empty; expected the text between the fields of a header")


def _check_residues(residues: str, path: Path, number: int, replace_invalid: bool) -> str:
    if replace_invalid:
        return _NOT_RESIDUE.sub(UNKNOWN, residues).upper()
    if invalid := _NOT_RESIDUE.search(residues):
        raise InputError(
            f"{path}, line {number}: {invalid[0]!r} is not a residue; expected the letters A to Z. "
            "Remove gaps and stop codons, or use the replace_invalid option to replace such "
            f"characters with {UNKNOWN}."
        )
    return residues.upper()


def _protein(path: Path, name: str, line: int, parts: list[str]) -> Protein:
    sequence = "".join(parts)
    if not sequence:
        raise InputError(
            f"{path}, line {line}: the protein {name!r} has no residues; expected its sequence on "
            "the lines after the header. Remove the header, or add the sequence."
        )
    return Protein(name, sequence, line)
