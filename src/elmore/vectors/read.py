"""Read vector files, and what elmore has recorded in them."""

import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from tokenize import TokenError
from typing import Any, overload

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elmore.errors import InputError, as_input_error
from elmore.vectors.formats import CRC32S, RECORD, Batches, batch_crc32, record_in, row_crc32
from elmore.vectors.rows import VectorRow, from_batch

ReadRows = Callable[[Path, int | None], Iterator[VectorRow]]
_READ_ERRORS = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    EOFError,
    OSError,
    RuntimeError,  # of h5py, and of encrypted members of a .npz file
    pa.ArrowException,
    zipfile.BadZipFile,
    zlib.error,
    TokenError,  # of NumPy, for the header of an array
)


@overload
def read_vectors(path: Path | str) -> Iterator[VectorRow]: ...
@overload
def read_vectors(path: Path | str, row: int) -> VectorRow: ...
def read_vectors(path: Path | str, row: int | None = None) -> Iterator[VectorRow] | VectorRow:
    """Read the sentences of a file that `embed_file` or AllenNLP's `elmo` command has written.

    Only one row group or record batch is in memory at a time. The vectors of an .arrow file are
    read-only views of the file, those of a .parquet file read-only views of a row group. HDF5 files
    store sentences without their token boundaries, so sentences are split at spaces.

    Args:
        path: A .parquet, .arrow, .h5, .hdf5 or .npz file.
        row: Return only this sentence: its line number, from 0, which is also its id.

    Raises:
        InputError: If the file is not a file of vectors, is damaged, or has no such row.
    """
    path = Path(path)
    if path.suffix not in _READERS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(_READERS)}")
    if row is None:
        return _read_rows(path, None)
    for found in _read_rows(path, row):
        return found
    raise InputError(f"{path} has no row {row}")


def _read_rows(path: Path, row: int | None) -> Iterator[VectorRow]:
    path.stat()  # raises FileNotFoundError
    message = f"{path} is not a {path.suffix} file of vectors, or it is damaged"
    with as_input_error(message, *_READ_ERRORS):
        yield from _READERS[path.suffix][0](path, row)


def _read_parquet(path: Path, row: int | None) -> Iterator[VectorRow]:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        sizes = (file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
        yield from _select(sizes, lambda i: file.read_row_group(i).to_batches(), row)


def _read_arrow(path: Path, row: int | None) -> Iterator[VectorRow]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        sizes = (file.get_batch(i).num_rows for i in range(file.num_record_batches))
        yield from _select(sizes, lambda i: [_read_arrow_batch(file, i)], row)


def _read_arrow_batch(file: pa.RecordBatchFileReader, number: int) -> pa.RecordBatch:
    batch, custom = file.get_batch_with_custom_metadata(number)
    metadata = {key.decode(): value.decode() for key, value in (custom or {}).items()}
    crc32 = metadata.pop("crc32", None)  # not in resumed files of older versions
    batch.validate(full=True)  # lengths, for example, are not part of the checksum
    if crc32 not in (None, f"{batch_crc32(batch, metadata)}"):
        raise ValueError(f"the checksum of record batch {number} does not match")
    return batch


def _select(
    sizes: Iterable[int], read: Callable[[int], Batches], row: int | None
) -> Iterator[VectorRow]:
    """Yield all rows, or one of them, from groups of rows with the given sizes."""
    first = 0
    for i, size in enumerate(sizes):
        if row is None or first <= row < first + size:
            rows = chain.from_iterable(map(from_batch, read(i)))
            yield from rows if row is None else islice(rows, row - first, row - first + 1)
        first += size


def _read_npz(path: Path, row: int | None) -> Iterator[VectorRow]:
    with path.open("rb") as raw, np.load(raw) as file:  # np.load leaves damaged files open
        names = [name for name in file.files if not name.endswith(".tokens")]
        if {*file.files} != {f"{i}{part}" for i in range(len(names)) for part in ("", ".tokens")}:
            raise ValueError("arrays are missing")
        saved = (read_record(path) or {}).get("saved")  # not in files of other programs
        if saved and saved[0] != len(names):
            raise ValueError(f"it has {len(names):,} of {saved[0]:,} sentences")
        for name in names if row is None else {f"{row}"}.intersection(names):
            yield VectorRow(int(name), json.loads(str(file[f"{name}.tokens"])), file[name])


def _read_hdf5(path: Path, row: int | None) -> Iterator[VectorRow]:
    with h5py.File(path) as file:
        if "sentence_to_index" not in file:
            raise InputError(
                f"{path} has no sentence_to_index, which says what its sentences are. Files of "
                "bilm-tf, and of AllenNLP with forget_sentences or use_sentence_keys, have none: "
                "read them with h5py"
            )
        by_elmore = RECORD in file.attrs
        # A list, because equal sentences have the same key.
        index = json.loads(file["sentence_to_index"][0], object_pairs_hook=list)
        sentences = {int(number): sentence for sentence, number in index}
        ids = sorted(int(name) for name in file if name != "sentence_to_index")
        crc32s = file.attrs.get(CRC32S)  # not in files of older versions
        expected = {} if crc32s is None else dict(zip(ids, crc32s.tolist(), strict=True))
        for number in ids if row is None else {row}.intersection(ids):
            if number not in sentences and not by_elmore:
                raise InputError(
                    f"{path} does not contain sentence {number}, because a later one is equal to "
                    "it: AllenNLP writes equal sentences once. Read the vectors with h5py, and the "
                    "sentences from the text"
                )
            sentence, vectors = sentences[number], file[f"{number}"][...]
            crc32 = expected.get(number)
            if crc32 not in (None, row_crc32(sentence, vectors)):
                raise ValueError(f"the checksum of row {number} does not match")
            # Tokens of elmore may contain white space other than spaces.
            tokens = sentence.split(" " if by_elmore else None) if sentence else []
            yield VectorRow(number, tokens, vectors)


def read_record(path: Path) -> dict[str, Any] | None:
    """Return what a run has recorded in its output; None if elmore did not write the file.

    The record has the `settings` of the run and, for a file with rows, `saved`: the values of
    `Saved` after the last row.
    """
    if not path.is_file():  # reading a named pipe would wait for a writer
        return None
    try:
        record = _READERS[path.suffix][1](path)
        return record if isinstance(record["settings"], dict) else None
    except (ValueError, TypeError, KeyError, OSError, RuntimeError):
        return None


def _read_parquet_record(path: Path) -> dict[str, Any]:
    return dict(json.loads(record_in(pq.read_schema(path))))


def _read_arrow_record(path: Path) -> dict[str, Any]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        record = dict(json.loads(record_in(file.schema)))
        if "saved" not in record and file.num_record_batches:  # written while rows were computed
            last = file.get_batch_with_custom_metadata(file.num_record_batches - 1)
            if "saved" in last.custom_metadata:  # not in the partitions of a corpus
                record["saved"] = json.loads(last.custom_metadata["saved"])
        return record


def _read_hdf5_record(path: Path) -> dict[str, Any]:
    with h5py.File(path) as file:
        return dict(json.loads(file.attrs[RECORD]))


def _read_npz_record(path: Path) -> dict[str, Any]:
    # `ZipFile` would read the names of all members. The comment is the end of the file, after a
    # signature and 18 bytes.
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - zipfile.ZIP_MAX_COMMENT - 22))
        end = file.read()
    return dict(json.loads(end[end.rfind(b"PK\x05\x06") + 22 :]))


_READERS: dict[str, tuple[ReadRows, Callable[[Path], dict[str, Any]]]] = {
    ".parquet": (_read_parquet, _read_parquet_record),
    ".arrow": (_read_arrow, _read_arrow_record),
    ".h5": (_read_hdf5, _read_hdf5_record),
    ".hdf5": (_read_hdf5, _read_hdf5_record),
    ".npz": (_read_npz, _read_npz_record),
}
"""What reads the rows and the record of a file, by its suffix."""
