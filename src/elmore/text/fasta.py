"""FASTA files to protein sequences, one letter per residue.

>sp|P69905|HBA_HUMAN Hemoglobin subunit alpha     a header: `>`, an id, a description
MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTK         residues, on any number of lines
TYFPHFDLSHGSAQ
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.text.lines import read_lines

MAX_ID = 1000
"""Maximum characters of an id. A longer one is taken for a file that is not FASTA."""
SelectId = Callable[[str], str]
"""Returns the id in a header, given without its `>`."""
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
        id_field: See `id_selector`.
        split_char: See `id_selector`.
        replace_invalid: Replace characters that are not letters, such as `*` and `-`, with `X`, the
            unknown residue, instead of raising an error.

    Raises:
        InputError: With the line number, if the file is not FASTA, an id is missing or repeated,
            or a sequence is empty or has characters that are not residues.
    """
    lines_of_ids: dict[str, int] = {}
    select = id_selector(id_field, split_char)
    for name, line, parts in read_records(path, select, replace_invalid=replace_invalid):
        if name in lines_of_ids:
            raise InputError(
                f"{path}, line {line}: the id {name!r} repeats that of line "
                f"{lines_of_ids[name]}. Ids must be distinct: rename one, or choose another "
                "field of the headers."
            )
        lines_of_ids[name] = line
        residues = (_check_residues(part, path, n, replace_invalid) for n, part in parts)
        sequence = "".join(residues)
        if not sequence:
            raise InputError(
                f"{path}, line {line}: the protein {name!r} has no residues; expected its sequence "
                "on the lines after the header. Remove the header, or add the sequence."
            )
        yield Protein(name, sequence, line)
    if not lines_of_ids:
        raise InputError(f"{path} has no proteins; expected a FASTA file")


class Record(NamedTuple):
    """A record of a FASTA file: an id, the line of its header, and lines with their numbers."""

    id: str
    line: int
    lines: list[tuple[int, str]]


def read_records(
    path: Path, select: SelectId, *, replace_invalid: bool = False
) -> Iterator[Record]:
    """Yield the records of a FASTA file as they are, without white space.

    Raises:
        InputError: With the line number, if a header is missing or has no id.
    """
    record: Record | None = None
    for number, line in enumerate(read_lines(path, replace_invalid=replace_invalid), start=1):
        if line.startswith(">"):
            if record is not None:
                yield record
            try:
                record = Record(select(line[1:]), number, [])
            except InputError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
        elif residues := "".join(line.split()):
            if record is None:
                raise InputError(
                    f"{path}, line {number}: expected a header that starts with '>', got "
                    f"{line[:40]!r}. Is this a FASTA file?"
                )
            record.lines.append((number, residues))
    if record is not None:
        yield record


def id_selector(id_field: int | None, split_char: str) -> SelectId:
    """Return the function that selects the id in a header.

    Args:
        id_field: The number of a field, from 0, of the header split at `split_char`; -1 for the
            whole header. By default the first word.
        split_char: Separates the fields.

    Raises:
        InputError: If an argument is invalid.
    """
    if id_field is not None and id_field < -1:
        raise InputError(
            f"id_field must be a number from 0, or -1 for the whole header, got {id_field}"
        )
    if not split_char:
        raise InputError("split_char is empty; expected the text between the fields of a header")
    return partial(select_id, id_field=id_field, split_char=split_char)


def select_id(header: str, id_field: int | None, split_char: str) -> str:
    """Return the id in a header; see `id_selector`.

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
