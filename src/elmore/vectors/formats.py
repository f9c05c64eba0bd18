"""Write vector files: Arrow, Parquet, HDF5 in AllenNLP's layout, and npz.

A writer takes record batches one at a time, and its memory does not grow with their number. What a
run records under `RECORD` in the metadata of the schema is stored in the file, and so are
checksums of the rows. `elmore.vectors.read` reads both.
"""

import json
import shutil
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from h5py import h5d, h5p, h5s, h5t

from elmore.errors import InputError
from elmore.signals import deferred_signals
from elmore.vectors.rows import from_batch

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on

Batches = Iterable[pa.RecordBatch]
WriteBatches = Callable[[Path, pa.Schema, Batches], None]

RECORD = "elmore"
"""Name of the record of a run in schemas and HDF5 files. An .npz file has it as its comment."""
CRC32S = "elmore_crc32"
"""Attribute of HDF5 files: the checksums of the rows."""
_LONGEST_STRING = 2**31 - 1  # of numpy 1, and so of a dataset that h5py can read


def write_arrow(path: Path, schema: pa.Schema, batches: Batches) -> None:
    """Write the Arrow IPC file format."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch, {"crc32": f"{batch_crc32(batch, {})}"})


def batch_crc32(batch: pa.RecordBatch, metadata: Mapping[str, str]) -> int:
    """Return a checksum of the values of a record batch, their types, and its metadata."""
    crc32 = zlib.crc32(json.dumps([metadata, str(batch.schema.types)], sort_keys=True).encode())
    for column in batch.columns:
        for buffer in filter(None, column.buffers()):
            crc32 = zlib.crc32(buffer, crc32)
    return crc32


def write_parquet(path: Path, schema: pa.Schema, batches: Batches) -> None:
    """Write one row group per batch, uncompressed because vectors hardly compress."""
    with pq.ParquetWriter(
        path,
        schema,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_hdf5(path: Path, schema: pa.Schema, batches: Batches) -> None:
    """Write the layout of AllenNLP's `elmo` command.

    One dataset per sentence, named by its line number, and `sentence_to_index`, a JSON object that
    maps each sentence to the name of its dataset.
    """
    with new_hdf5(path, record_in(schema)) as (file, disk), TemporaryFile(dir=path.parent) as index:
        separator, crc32s = "{", array("I")
        for batch in batches:
            with deferred_signals():
                for row in from_batch(batch):
                    disk.check()
                    _add_dataset(file, str(row.id), row.vectors)
                    # As in AllenNLP, the last of equal sentences counts: JSON parsers keep that
                    # one.
                    sentence = " ".join(row.tokens)
                    entry = f'{separator}{json.dumps(sentence)}: "{row.id}"'
                    index.write(entry.encode())
                    separator = ", "
                    crc32s.append(row_crc32(sentence, row.vectors))
        with deferred_signals():
            index.write(b"}" if index.tell() else b"{}")
            _add_index(file, disk, index)
            file.attrs[CRC32S] = np.frombuffer(crc32s, np.uint32)


@contextmanager
def new_hdf5(path: Path, record: bytes) -> Iterator[tuple[h5py.File, "HDF5File"]]:
    """Open a new HDF5 file; yield the `h5py.File` and the `HDF5File` that it writes to.

    Use the `h5py.File` within `deferred_signals()`: the HDF5 library calls the Python code of
    `HDF5File`.
    """
    with HDF5File(path) as disk:
        file: h5py.File | None = None
        try:
            with deferred_signals():
                # Groups of older formats keep the names of all datasets in one block in memory.
                file = h5py.File(disk, "w", libver=("v108", "v108"))
            yield file, disk
            with deferred_signals():
                file.attrs[RECORD] = record.decode()
        finally:
            if file is not None:
                with deferred_signals():
                    file.close()
        disk.check()


def row_crc32(sentence: str, vectors: np.ndarray) -> int:
    """Return a checksum of a row of an HDF5 file."""
    return zlib.crc32(np.ascontiguousarray(vectors).data, zlib.crc32(sentence.encode()))


def _add_dataset(file: h5py.File, name: str, vectors: np.ndarray) -> None:
    """Do what `file[name] = vectors` does, in half the time."""
    space = h5s.create_simple(vectors.shape)
    dataset = h5d.create(file.id, name.encode(), h5t.py_create(vectors.dtype), space)
    if vectors.size:
        dataset.write(h5s.ALL, h5s.ALL, vectors)


def _add_index(file: h5py.File, disk: "HDF5File", index: IO[bytes]) -> None:
    """Copy the index into the file.

    HDF5 copies a string of variable length three times in memory. One of fixed length, which h5py
    returns as bytes too, has a place in the file that can be filled piece by piece.
    """
    size = index.tell()
    if size > _LONGEST_STRING:
        raise InputError(
            f"sentence_to_index would have {size:,} bytes, and HDF5 files can have "
            f"{_LONGEST_STRING:,}; choose another format, or split the text"
        )
    allocated = h5p.create(h5p.DATASET_CREATE)
    allocated.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    allocated.set_fill_time(h5d.FILL_TIME_NEVER)
    kind, space = h5t.py_create(np.dtype(f"S{size}")), h5s.create_simple((1,))
    dataset = h5d.create(file.id, b"sentence_to_index", kind, space, allocated)
    disk.seek(dataset.get_offset())
    index.seek(0)
    shutil.copyfileobj(index, disk)


class HDF5File(FileIO):
    """A file for the HDF5 library, which ends the process if a write fails, as on a full disk.

    The first error is kept for `check` to raise. From then on nothing is written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the error of an earlier write."""
        if self._error:
            raise self._error

    def write(self, data: "Buffer") -> int:
        """Write all of the data."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and not self._error:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self._error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file, to which the library has written."""
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0


def write_npz(path: Path, schema: pa.Schema, batches: Batches) -> None:
    """Write arrays named "0", "1", ... by line number; "0.tokens" has the tokens as JSON."""
    with new_npz(path, record_in(schema)) as add:
        for row in chain.from_iterable(map(from_batch, batches)):
            add(f"{row.id}", row.vectors)
            add(f"{row.id}.tokens", np.array(json.dumps(row.tokens)))


@contextmanager
def new_npz(path: Path, record: bytes) -> Iterator[Callable[[str, np.ndarray], None]]:
    """Yield a function that adds a named array to a new .npz file; memory does not grow."""
    with TemporaryFile(dir=path.parent) as spool, zipfile.ZipFile(path, "w") as archive:
        archive.filelist = ArchiveMembers(spool)  # type: ignore[assignment]
        archive.comment = record

        def add(name: str, array: np.ndarray) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
            archive.NameToInfo.clear()

        yield add


class ArchiveMembers:
    """The list from which `ZipFile` writes the directory of an archive, kept in a file."""

    _FIELDS = (
        "filename", "date_time", "file_size", "compress_size", "header_offset", "CRC", "flag_bits",
        "external_attr", "create_version", "extract_version",
    )  # fmt: skip

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._count = 0

    def append(self, member: zipfile.ZipInfo) -> None:
        """Add a member."""
        values = {name: getattr(member, name) for name in self._FIELDS}
        self._file.write(json.dumps(values).encode() + b"\n")
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[zipfile.ZipInfo]:
        self._file.seek(0)
        for line in self._file:
            member = zipfile.ZipInfo()
            for name, value in json.loads(line).items():
                setattr(member, name, value)
            yield member


def record_in(schema: pa.Schema) -> bytes:
    """Return the record of a run as JSON; empty if the schema has none."""
    return (schema.metadata or {}).get(RECORD.encode(), b"")


FORMATS: dict[str, WriteBatches] = {
    ".parquet": write_parquet,
    ".arrow": write_arrow,
    ".h5": write_hdf5,
    ".hdf5": write_hdf5,
    ".npz": write_npz,
}
"""Writers by the suffix of the file."""
