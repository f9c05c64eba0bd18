"""Rows of vectors to one file, and back: Parquet, HDF5 in AllenNLP's layout, npz.

J layers, W words, D dim.
"""

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from elmore.errors import InputError

Dtype = Literal["float32", "float16"]
_COLUMNS = ("id", "tokens", "vectors")


class VectorRow(NamedTuple):
    """One sentence: the number of its line, its tokens, its vectors (J, W, D) or (W, D)."""

    id: int
    tokens: list[str]
    vectors: Float[np.ndarray, "..."]


class VectorForm(NamedTuple):
    """What all rows of a file have in common. No layers means that rows are (W, D)."""

    num_layers: int | None
    dim: int
    dtype: Dtype


def to_table(rows: Sequence[VectorRow], form: VectorForm) -> pa.Table:
    """Lay rows out in Arrow's memory, with no Python object for any number."""
    num_layers, dim, dtype = form
    vectors = [row.vectors for row in rows]
    numbers = np.concatenate([v.reshape(-1) for v in vectors]).astype(dtype, copy=False)
    words = pa.FixedSizeListArray.from_arrays(pa.array(numbers), dim)
    lengths = np.repeat([v.shape[-2] for v in vectors], num_layers or 1)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), words)
    columns = [
        pa.array([row.id for row in rows], pa.int64()),
        pa.array([row.tokens for row in rows], pa.list_(pa.string())),
        lists if num_layers is None else pa.FixedSizeListArray.from_arrays(lists, num_layers),
    ]
    return pa.Table.from_arrays(columns, schema=_schema(form))


def _schema(form: VectorForm) -> pa.Schema:
    vectors = pa.list_(pa.list_(pa.from_numpy_dtype(form.dtype), form.dim))
    if form.num_layers is not None:
        vectors = pa.list_(vectors, form.num_layers)
    return pa.schema({"id": pa.int64(), "tokens": pa.list_(pa.string()), "vectors": vectors})


def rows_of(table: pa.Table) -> Iterator[VectorRow]:
    """Yield the rows of a table, with numpy arrays again."""
    for i, tokens, vectors in zip(*(table.column(name) for name in _COLUMNS), strict=True):
        yield VectorRow(i.as_py(), tokens.as_py(), _array(vectors.values))


def _array(values: pa.Array) -> np.ndarray:
    """Turn nested lists back into an array: (W, D), or (J, W, D)."""
    if pa.types.is_list(values.type):  # one list a layer
        return np.stack([_array(layer.values) for layer in values])
    return values.flatten().to_numpy().reshape(len(values), values.type.list_size)


def read_tables(path: Path) -> Iterator[pa.Table]:
    """Yield the row groups of a Parquet file."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


def read_vectors(path: Path | str) -> Iterator[VectorRow]:
    """Yield the rows of a Parquet file that `elmore embed` has written."""
    try:
        for table in read_tables(Path(path)):
            yield from rows_of(table)
    except (pa.ArrowInvalid, KeyError) as error:
        raise InputError(
            f"{path} is not a Parquet file of vectors ({error}); expected one that "
            "`elmore embed -o vectors.parquet` has written"
        ) from error


class Writer(Protocol):
    """A file that is being written."""

    def __init__(self, path: Path, form: VectorForm) -> None: ...

    def write(self, table: pa.Table) -> None:
        """Add some rows."""

    def close(self) -> None:
        """Finish the file."""


class ParquetWriter:
    """Columns id, tokens and vectors, the last as nested lists of the shape of a row."""

    def __init__(self, path: Path, form: VectorForm) -> None:
        # Vectors look like noise: to compress them costs time and saves nothing.
        self._file = pq.ParquetWriter(
            path, _schema(form), compression="none", use_dictionary=False, write_statistics=False
        )

    def write(self, table: pa.Table) -> None:
        """Add a row group."""
        self._file.write_table(table)

    def close(self) -> None:
        """Write the footer."""
        self._file.close()


class HDF5Writer:
    """The layout of AllenNLP's `elmo` command: key = line number, and `sentence_to_index`."""

    def __init__(self, path: Path, form: VectorForm) -> None:  # noqa: ARG002
        self._file = h5py.File(path, "w")
        self._index: dict[str, str] = {}

    def write(self, table: pa.Table) -> None:
        """Add one dataset a row."""
        for row in rows_of(table):
            self._file[str(row.id)] = row.vectors
            # As there, a sentence that comes again points to its last line.
            self._index[" ".join(row.tokens)] = str(row.id)

    def close(self) -> None:
        """Add the sentences and close the file."""
        index = self._file.create_dataset("sentence_to_index", (1,), h5py.string_dtype("utf-8"))
        index[0] = json.dumps(self._index)
        self._file.close()


class NpzWriter:
    """Arrays "0", "1", ... by line number, and the tokens of each as JSON, "0.tokens"."""

    def __init__(self, path: Path, form: VectorForm) -> None:  # noqa: ARG002
        self._file = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)

    def write(self, table: pa.Table) -> None:
        """Add two arrays a row."""
        for row in rows_of(table):
            self._add(f"{row.id}", row.vectors)
            self._add(f"{row.id}.tokens", np.array(json.dumps(row.tokens)))

    def _add(self, name: str, array: np.ndarray) -> None:
        with self._file.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)

    def close(self) -> None:
        """Write the directory of the archive."""
        self._file.close()


_WRITERS: dict[str, type[Writer]] = {
    ".parquet": ParquetWriter,
    ".h5": HDF5Writer,
    ".hdf5": HDF5Writer,
    ".npz": NpzWriter,
}


def writer_for(path: Path) -> type[Writer]:
    """Return the format that a file's suffix asks for."""
    if path.suffix not in _WRITERS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(_WRITERS)}")
    return _WRITERS[path.suffix]
