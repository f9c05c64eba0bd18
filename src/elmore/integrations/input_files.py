"""Input files of a corpus, read in batches: Parquet, lines of JSON, and lines of text.

Files with lines may be compressed.
"""

import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from elmore.errors import InputError
from elmore.text.lines import open_bytes, read_lines

_ROWS = 1024  # of a batch
_READ_BYTES = 2**24
_COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


class Opened(NamedTuple):
    """The columns of an input file, and its rows."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def open_partition(path: Path, *, replace_invalid: bool = False) -> Opened:
    """Open an input file. Lines of text have the column `text`."""
    return OPEN[format_of(path)](path, replace_invalid)


def _open_parquet(path: Path, _: bool) -> Opened:
    def batches() -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(_ROWS)

    return Opened(pq.read_schema(path), batches())


def _open_json(path: Path, _: bool) -> Opened:
    """Read the file twice: all of it decides on the types of the columns."""
    schema = pa.schema([])
    for block in _json_blocks(path):
        schema = _merge(schema, block.schema)
    if not len(schema):
        raise InputError("no JSON objects; expected one per line")
    blocks = _json_blocks(path, schema)
    return Opened(schema, (batch for block in blocks for batch in block.to_batches(_ROWS)))


def _json_blocks(path: Path, schema: pa.Schema | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a file with one JSON object per line, a limited number at a time.

    Args:
        path: The file.
        schema: Types of all columns; by default, each table has those of its own rows.
    """
    read_options = pa.json.ReadOptions(block_size=_READ_BYTES)
    parse_options = pa.json.ParseOptions(explicit_schema=schema)
    lines_before = 0
    for lines in _blocks_of_lines(path):
        if not lines.isspace():
            try:
                yield pa.json.read_json(pa.BufferReader(lines), read_options, parse_options)
            except pa.ArrowInvalid as error:
                where = _find_invalid_json(lines.splitlines(), lines_before)
                raise InputError(f"{where}: {error}") from error
        lines_before += lines.count(b"\n")


def _find_invalid_json(lines: Sequence[bytes], before: int) -> str:
    """Describe the first line that is not JSON, as in `line 7`, or all lines if each is JSON."""
    for number, line in enumerate(lines, start=before + 1):
        try:
            json.loads(line.strip() or b"{}")
        except ValueError:
            return f"line {number:,}"
    return f"lines {before + 1:,} to {before + len(lines):,}"


def _blocks_of_lines(path: Path) -> Iterator[bytes]:
    """Yield the contents of a file in parts of up to `_READ_BYTES` that end with a line."""
    rest = b""
    try:
        with open_bytes(path) as file:
            while chunk := file.read(_READ_BYTES - len(rest)):
                lines, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    yield lines + newline
                elif len(rest) == _READ_BYTES:
                    raise InputError(
                        f"more than {_READ_BYTES:,} bytes without a line break; expected one JSON "
                        "object per line"
                    )
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if path.suffix not in _COMPRESSED:
            raise
        raise InputError(f"damaged {path.suffix} file ({error})") from error
    if rest:
        yield rest


def _merge(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return the columns of both, with types for the values of both, as Arrow infers them.

    Arrow takes strings for timestamps if all of them look like one.
    """
    try:
        return pa.unify_schemas([schema, other], promote_options="permissive")
    except pa.ArrowTypeError:
        as_text = [
            pa.schema(
                pa.field(
                    field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type
                )
                for field in columns
            )
            for columns in (schema, other)
        ]
        return pa.unify_schemas(as_text, promote_options="permissive")


def _open_text(path: Path, replace_invalid: bool) -> Opened:
    schema = pa.schema({"text": pa.string()})

    def batches() -> Iterator[pa.RecordBatch]:
        lines = read_lines(path, replace_invalid=replace_invalid)
        while chunk := [*islice(lines, _ROWS)]:
            yield pa.record_batch([pa.array(chunk, pa.string())], schema)

    return Opened(schema, batches())


OPEN: dict[str, Callable[[Path, bool], Opened]] = {
    ".parquet": _open_parquet,
    ".jsonl": _open_json,
    ".txt": _open_text,
}


def format_of(path: Path) -> str:
    """Return the suffix of the format, without that of the compression."""
    suffix = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    is_compressed_parquet = suffix == ".parquet" != path.suffix
    return "" if is_compressed_parquet else suffix


def stem_of(path: Path) -> str:
    """Return the name without the suffixes of its format and compression."""
    return (path.with_suffix("") if path.suffix in _COMPRESSED else path).stem
