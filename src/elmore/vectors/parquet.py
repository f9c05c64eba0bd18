"""Rows to Parquet, the numbers as they are, and back.

Parquet stores a nested list as its numbers, one after the other, and for each number two levels:
which list begins with it, and whether it is there at all. pyarrow finds them out number by number,
and that takes ten times as long as the disk. Here every word has D numbers, so a word's levels are
a few bytes that are known beforehand, and the numbers go from memory to the file as they are. The
other columns, which are small, and the schema are written by pyarrow and copied.

J layers, W words, D dim.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from elmore.errors import InputError
from elmore.vectors.rows import VectorForm, VectorRow

_MAGIC = b"PAR1"
_WORDS_PER_PAGE = 4096
_BYTES_COPIED = 2**24
# pyarrow's footer of no rows: before this the schema, after it what a reader should know besides.
_NO_ROWS = b"\x16\x00\x19\x0c"
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12  # Thrift's compact protocol
_PLAIN, _RLE = 0, 3
_PHYSICAL = {"INT64": 2, "FLOAT": 4, "BYTE_ARRAY": 6, "FIXED_LEN_BYTE_ARRAY": 7}
# Vectors look like noise: to compress them costs time and saves nothing.
_PLAINLY = {"compression": "none", "use_dictionary": False, "write_statistics": False}


class ParquetWriter:
    """Columns id, tokens and vectors, the last as nested lists of the shape of a row."""

    def __init__(self, path: Path, form: VectorForm) -> None:
        self._form = form
        self._around_groups = _footer_of_no_rows(form).split(_NO_ROWS)
        if len(self._around_groups) != 2:
            raise InputError(f"this pyarrow, {pa.__version__}, writes a footer unknown to elmore")
        self._file = path.open("wb", buffering=0)
        self._groups: list[bytes] = []
        self._num_rows = 0
        self._write(_MAGIC)

    def write(self, rows: Sequence[VectorRow]) -> None:
        """Add a row group."""
        self._add_group(len(rows), [*self._write_small(rows), self._write_vectors(rows)])

    def append(self, path: Path) -> None:
        """Add the row groups of another such file."""
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            with path.open("rb") as file:
                chunks = [self._copy(file, group.column(i)) for i in range(group.num_columns)]
            self._add_group(group.num_rows, chunks)

    @staticmethod
    def count(path: Path) -> int:
        """Return the number of rows of a file, or raise an OSError if it is damaged."""
        try:
            return pq.read_metadata(path).num_rows
        except pa.ArrowInvalid as error:
            raise OSError(f"{path}: {error}") from error

    def close(self) -> None:
        """Write the footer."""
        before, after = self._around_groups
        groups = _list(_STRUCT, self._groups)
        footer = b"".join([before, b"\x16", _integer(self._num_rows), b"\x19", groups, after])
        with self._file:
            self._write(footer, len(footer).to_bytes(4, "little"), _MAGIC)

    def _write_small(self, rows: Sequence[VectorRow]) -> Iterator["_Chunk"]:
        """Write the columns that pyarrow writes."""
        schema = _schema(self._form).remove(2)
        columns = ([row.id for row in rows], [row.tokens for row in rows])
        file = io.BytesIO()
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema
        )
        pq.write_table(table, file, **_PLAINLY)
        group = pq.read_metadata(file).row_group(0)
        for i in range(group.num_columns):
            yield self._copy(file, group.column(i))

    def _copy(self, file: BinaryIO, chunk: pq.ColumnChunkMetaData) -> "_Chunk":
        """Copy the pages of a column from another file."""
        offset = self._file.tell()
        file.seek(chunk.data_page_offset)
        left = chunk.total_compressed_size
        while left:
            some = file.read(min(left, _BYTES_COPIED))
            if not some:
                raise OSError("a part ends before its last row group does")
            self._write(some)
            left -= len(some)
        path = chunk.path_in_schema.split(".")
        return _Chunk(
            _PHYSICAL[chunk.physical_type],
            path,
            chunk.num_values,
            offset,
            chunk.total_compressed_size,
        )

    def _write_vectors(self, rows: Sequence[VectorRow]) -> "_Chunk":
        """Write the column of vectors, from the arrays themselves."""
        offset = self._file.tell()
        num_values = 0
        for page in _pages(rows, self._form):
            num_values += page.num_values
            self._write(*page.encode())
        kind = _PHYSICAL["FLOAT" if self._form.dtype == "float32" else "FIXED_LEN_BYTE_ARRAY"]
        path = ["vectors"] + _nesting(self._form) * ["list", "element"]
        return _Chunk(kind, path, num_values, offset, self._file.tell() - offset)

    def _add_group(self, num_rows: int, chunks: Sequence["_Chunk"]) -> None:
        self._num_rows += num_rows
        size = sum(chunk.size for chunk in chunks)
        self._groups.append(
            _struct(
                (1, _LIST, _list(_STRUCT, [chunk.encode() for chunk in chunks])),
                (2, _I64, _integer(size)),
                (3, _I64, _integer(num_rows)),
            )
        )

    def _write(self, *buffers: bytes | np.ndarray) -> None:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
            while view:  # an unbuffered file may take less than it is given
                view = view[self._file.write(view) :]


class _Chunk(NamedTuple):
    """The pages of one column in one row group."""

    kind: int
    path: list[str]
    num_values: int
    offset: int
    size: int

    def encode(self) -> bytes:
        return _struct(
            (2, _I64, _integer(0)),
            (3, _STRUCT, _struct(
                (1, _I32, _integer(self.kind)),
                (2, _LIST, _list(_I32, [_integer(_PLAIN), _integer(_RLE)])),
                (3, _LIST, _list(_BINARY, [_varint(len(p)) + p.encode() for p in self.path])),
                (4, _I32, _integer(0)),  # not compressed
                (5, _I64, _integer(self.num_values)),
                (6, _I64, _integer(self.size)),
                (7, _I64, _integer(self.size)),
                (9, _I64, _integer(self.offset)),
            )),
        )  # fmt: skip


class _Page:
    """Some words on their way to the file: what begins with each, and its numbers.

    A level is stored as runs of equal ones. With three lists in each other, [[[...]]], the first
    number of a word begins list 0 (the row), 1 (a layer) or 2 (a word), all others continue it, 3.
    """

    def __init__(self, form: VectorForm) -> None:
        self.vectors: list[np.ndarray] = []
        self.num_values = 0
        self._dim = form.dim
        self._nesting = _nesting(form)
        self._begins = bytearray()
        self._exists = bytearray()
        self._next_word = self._word(self._nesting - 1)

    def _word(self, begins: int) -> bytes:
        return _run(1, begins) + _run(self._dim - 1, self._nesting)

    def add(self, begins: int, words: Float[np.ndarray, "W D"]) -> None:
        """Add words that follow each other in the list which the first of them begins."""
        if len(words) == 0:
            self._begins += _run(1, begins)
            self._exists += _run(1, 2 * self._nesting - 3)  # the list does, no word in it
            self.num_values += 1
            return
        self._begins += self._word(begins) + self._next_word * (len(words) - 1)
        self._exists += _run(words.size, 2 * self._nesting + 1)
        self.num_values += words.size
        self.vectors.append(words)

    def encode(self) -> Iterator[bytes | np.ndarray]:
        """Yield what is written."""
        levels = [
            part
            for level in (self._begins, self._exists)
            for part in (len(level).to_bytes(4, "little"), bytes(level))
        ]
        size = _integer(sum(map(len, levels)) + sum(words.nbytes for words in self.vectors))
        yield _struct(
            (1, _I32, _integer(0)),  # a page of data
            (2, _I32, size),
            (3, _I32, size),
            (5, _STRUCT, _struct(
                (1, _I32, _integer(self.num_values)),
                (2, _I32, _integer(_PLAIN)),
                (3, _I32, _integer(_RLE)),
                (4, _I32, _integer(_RLE)),
            )),
        )  # fmt: skip
        yield from levels
        yield from self.vectors


def _pages(rows: Iterable[VectorRow], form: VectorForm) -> Iterator[_Page]:
    page, room = _Page(form), _WORDS_PER_PAGE
    for row in rows:
        vectors = np.ascontiguousarray(row.vectors, form.dtype)
        layers = vectors[None] if form.num_layers is None else vectors
        for j, words in enumerate(layers):  # (W, D)
            begins = min(j, 1)
            while len(words) > room:  # a long list goes on in the next page
                if room:
                    page.add(begins, words[:room])
                    words, begins = words[room:], _nesting(form) - 1
                yield page
                page, room = _Page(form), _WORDS_PER_PAGE
            page.add(begins, words)
            room -= len(words)
    if page.num_values:
        yield page


def _nesting(form: VectorForm) -> int:
    """Return how many lists are in each other."""
    return 2 if form.num_layers is None else 3


def _schema(form: VectorForm) -> pa.Schema:
    vectors = pa.list_(pa.list_(pa.from_numpy_dtype(form.dtype), form.dim))
    if form.num_layers is not None:
        vectors = pa.list_(vectors, form.num_layers)
    return pa.schema({"id": pa.int64(), "tokens": pa.list_(pa.string()), "vectors": vectors})


def _footer_of_no_rows(form: VectorForm) -> bytes:
    file = io.BytesIO()
    pq.ParquetWriter(file, _schema(form), **_PLAINLY).close()
    size = int.from_bytes(file.getvalue()[-8:-4], "little")
    return file.getvalue()[-8 - size : -8]


def _run(count: int, level: int) -> bytes:
    """A level that comes so many times."""
    return _varint(2 * count) + bytes([level]) if count else b""


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that there are more."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _integer(number: int) -> bytes:
    return _varint(2 * number)  # the odd ones are for negative numbers


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    short = len(items) < 15
    head = bytes([len(items) << 4 | kind]) if short else bytes([0xF0 | kind]) + _varint(len(items))
    return head + b"".join(items)


def _struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Fields by number and type; a number is stored as the step from the one before."""
    found, last = bytearray(), 0
    for number, kind, value in fields:
        found += bytes([number - last << 4 | kind]) + value
        last = number
    return bytes(found) + b"\0"


def read_vectors(path: Path | str) -> Iterator[VectorRow]:
    """Yield the rows of a Parquet file that `elmore embed` has written."""
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["id", "tokens", "vectors"])
                for i, tokens, vectors in zip(*table.columns, strict=True):
                    yield VectorRow(i.as_py(), tokens.as_py(), _array(vectors.values))
    except (pa.ArrowInvalid, ValueError) as error:
        raise InputError(
            f"{path} is not a Parquet file of vectors ({error}); expected one that "
            "`elmore embed -o vectors.parquet` has written"
        ) from error


def _array(values: pa.Array) -> Float[np.ndarray, "..."]:
    """Turn nested lists back into an array: (W, D), or (J, W, D)."""
    if pa.types.is_list(values.type):  # one list a layer
        return np.stack([_array(layer.values) for layer in values])
    return values.flatten().to_numpy().reshape(len(values), values.type.list_size)
