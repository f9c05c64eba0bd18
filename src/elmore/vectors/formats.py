"""Rows of vectors to one file: Parquet, HDF5 in AllenNLP's layout, npz."""

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import h5py
import numpy as np
from h5py import h5d, h5o, h5p, h5s, h5t

from elmore.errors import InputError
from elmore.vectors.disk import Disk
from elmore.vectors.parquet import ParquetWriter
from elmore.vectors.rows import VectorForm, VectorRow

_INDEX = "sentence_to_index"


class Writer(Protocol):
    """A file that is being written."""

    def __init__(self, path: Path, form: VectorForm) -> None: ...

    def write(self, rows: Sequence[VectorRow]) -> None:
        """Add some rows."""

    def append(self, path: Path) -> None:
        """Add all rows of another file of this format."""

    def close(self) -> None:
        """Finish the file."""

    @staticmethod
    def count(path: Path) -> int:
        """Return the number of rows of a file, or raise an OSError if it is damaged."""
        ...


class HDF5Writer:
    """The layout of AllenNLP's `elmo` command: key = line number, and `sentence_to_index`."""

    def __init__(self, path: Path, form: VectorForm) -> None:
        self._disk = Disk(path)
        self._file = h5py.File(self._disk, "w")
        self._dtype = form.dtype
        self._index: dict[str, str] = {}

    def write(self, rows: Sequence[VectorRow]) -> None:
        """Add one dataset a row."""
        kind = h5t.py_create(np.dtype(self._dtype))
        placed = h5p.create(h5p.DATASET_CREATE)  # the library says where the numbers go
        placed.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        placed.set_fill_time(h5d.FILL_TIME_NEVER)
        for row in rows:
            self._disk.check()
            vectors = np.ascontiguousarray(row.vectors, self._dtype)
            space = h5s.create_simple(vectors.shape)
            data = h5d.create(self._file.id, str(row.id).encode(), kind, space, placed)
            if vectors.size:
                self._disk.put(data.get_offset(), vectors)
            # As there, a sentence that comes again points to its last line.
            self._index[" ".join(row.tokens)] = str(row.id)
        self._file.flush()  # what the library puts between the numbers goes with them
        self._disk.start()

    def append(self, path: Path) -> None:
        """Add the datasets of another such file."""
        with h5py.File(path) as part:
            self._index |= json.loads(part[_INDEX][0])
            for name in part:
                self._disk.check()
                if name != _INDEX:
                    h5o.copy(part.id, name.encode(), self._file.id, name.encode())

    def close(self) -> None:
        """Add the sentences and close the file."""
        self._disk.finish()
        if self._disk.error is None:
            index = self._file.create_dataset(_INDEX, (1,), h5py.string_dtype("utf-8"))
            index[0] = json.dumps(self._index)
        self._file.close()
        self._disk.close()
        self._disk.check()

    @staticmethod
    def count(path: Path) -> int:
        """Return the number of datasets, without the index."""
        with h5py.File(path) as file:
            return len(file) - 1


class NpzWriter:
    """Arrays "0", "1", ... by line number, and the tokens of each as JSON, "0.tokens"."""

    def __init__(self, path: Path, form: VectorForm) -> None:
        self._file = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        self._dtype = form.dtype

    def write(self, rows: Sequence[VectorRow]) -> None:
        """Add two arrays a row."""
        for row in rows:
            self._add(f"{row.id}", row.vectors.astype(self._dtype, copy=False))
            self._add(f"{row.id}.tokens", np.array(json.dumps(row.tokens)))

    def _add(self, name: str, array: np.ndarray) -> None:
        with self._file.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)

    def append(self, path: Path) -> None:
        """Add the arrays of another such file."""
        with zipfile.ZipFile(path) as part:
            for name in part.namelist():
                with part.open(name) as old, self._file.open(name, "w", force_zip64=True) as new:
                    shutil.copyfileobj(old, new)

    def close(self) -> None:
        """Write the directory of the archive."""
        self._file.close()

    @staticmethod
    def count(path: Path) -> int:
        """Return half the number of arrays."""
        try:
            with zipfile.ZipFile(path) as file:
                return len(file.namelist()) // 2
        except zipfile.BadZipFile as error:
            raise OSError(f"{path}: {error}") from error


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
