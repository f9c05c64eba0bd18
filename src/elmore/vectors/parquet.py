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
from contextlib import closing
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from elmore.errors import InputError
from elmore.vectors.disk import Beside, write_all
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
        self._beside = Beside()
        self._waiting: list[bytes | np.ndarray] = []  # to be written
        self._place = 0  # in the file, after what is waiting
        self._write(_MAGIC)

    def write(self, rows: Sequence[VectorRow]) -> None:
        """Add a row group."""
        self._add_group(len(rows), [*self._write_small(rows), self._write_vectors(rows)])
        self._flush()

    def append(self, path: Path) -> None:
        """Add the row groups of another such file."""
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            with path.open("rb") as file:
                chunks = [self._copy(file, group.column(i)) for i in range(group.num_columns)]
            self._add_group(group.num_rows, chunks)
            self._flush()

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
        self._write(footer, len(footer).to_bytes(4, "little"), _MAGIC)
        with self._file, closing(self._beside):
            self._flush()

    def _write_small(self, rows: Sequence[VectorRow]) -> Iterator["_Chunk"]:
        """Write the columns that pyarrow writes."""
        schema = _schema(self._form).remove(2)
        ids = pa.array([row.id for row in rows], pa.int64())
        ends = list(accumulate((len(row.tokens) for row in rows), initial=0))
        words = pa.array(list(chain.from_iterable(row.tokens for row in rows)), pa.string())
        tokens = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), words)
        file = io.BytesIO()
        pq.write_table(pa.table([ids, tokens], schema), file, **_PLAINLY)
        group = pq.read_metadata(file).row_group(0)
        for i in range(group.num_columns):
            yield self._copy(file, group.column(i))

    def _copy(self, file: BinaryIO, chunk: pq.ColumnChunkMetaData) -> "_Chunk":
        """Copy the pages of a column from another file."""
        offset = self._place
        file.seek(chunk.data_page_offset)
        left = chunk.total_compressed_size
        while left:
            some = file.read(min(left, _BYTES_COPIED))
            if not some:
                raise OSError("a part ends before its last row group does")
            self._write(some)
            left -= len(some)
            if len(some) == _BYTES_COPIED:
                self._flush()
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
        offset = self._place
        num_values = 0
        for page in _pages(rows, self._form):
            num_values += page.num_values
            self._write(*page.encode())
        kind = _PHYSICAL["FLOAT" if self._form.dtype == "float32" else "FIXED_LEN_BYTE_ARRAY"]
        path = ["vectors"] + _nesting(self._form) * ["list", "element"]
        return _Chunk(kind, path, num_values, offset, self._place - offset)

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
        self._waiting += buffers
        self._place += sum(b.nbytes if isinstance(b, np.ndarray) else len(b) for b in buffers)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._beside.start(write_all, self._file, waiting)


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

    def add(self, begins: int, words: Float[np.ndarray, "W D"]) -> None:
        """Add words that follow each other in the list which the first of them begins."""
        starts, exists = _levels(begins, len(words), self._dim, self._nesting)
        self._begins += starts
        self._exists += exists
        self.num_values += words.size or 1
        if len(words):
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


@lru_cache(maxsize=2**12)  # most sentences have the length of one before
def _levels(begins: int, num_words: int, dim: int, nesting: int) -> tuple[bytes, bytes]:
    """Return the levels of some words: what begins with them, and what of them exists."""
    if num_words == 0:
        return _run(1, begins), _run(1, 2 * nesting - 3)  # the list does, no word in it
    first, following = (_run(1, b) + _run(dim - 1, nesting) for b in (begins, nesting - 1))
    return first + following * (num_words - 1), _run(num_words * dim, 2 * nesting + 1)


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
