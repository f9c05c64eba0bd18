"""Write one array per key: HDF5, .npz, or .npy with the keys in a .json file beside it.

Arrays are written as they come, so memory does not grow with their number.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from elmore.atomic import atomic_file, lock, refuse_existing
from elmore.errors import InputError
from elmore.signals import deferred_signals
from elmore.vectors.formats import new_hdf5, new_npz
from elmore.vectors.read import read_record

Arrays = Iterable[tuple[str, np.ndarray]]
"""Keys and arrays."""

SUFFIXES = (".h5", ".hdf5", ".npz", ".npy")


def check_suffix(path: Path, *, per_protein: bool) -> None:
    """Raise `InputError` unless a file with this suffix can hold such vectors."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
    if path.suffix == ".npy" and not per_protein:
        raise InputError(
            f"{path}: an .npy file holds one vector per protein. Use the per_protein option, or "
            "choose .h5 or .npz for one vector per residue."
        )


def check_keyed(
    path: Path,
    *,
    per_protein: bool = True,
    overwrite: bool,
    inputs: Iterable[Path | str | None] = (),
) -> None:
    """Raise `InputError` if `write_keyed` would refuse this path.

    Args:
        path: The file to write.
        per_protein: Whether there is one vector per protein; .npy files cannot hold more.
        overwrite: Replace files that elmore wrote.
        inputs: Files and folders that are read, and so are not replaced.
    """
    check_suffix(path, per_protein=per_protein)
    inputs = list(inputs)
    for file in _files(path):
        refuse_existing(file, overwrite=overwrite, inputs=inputs, is_own=lambda _: _is_own(path))


def check_key(key: str, path: Path) -> None:
    """Raise `InputError` if a key cannot be read back from a file with the suffix of `path`."""
    if path.suffix in (".h5", ".hdf5") and ("/" in key or key == "."):
        raise InputError(f"HDF5 reserves '/' and '.', so {key!r} can't be a key")
    if path.suffix == ".npz" and key.endswith(".npy"):  # NumPy removes this suffix
        raise InputError(f"a key of an .npz file can't end in .npy as {key!r} does")


def write_keyed(
    path: Path,
    arrays: Arrays,
    *,
    settings: Mapping[str, Any] | None = None,
    order: Sequence[str] | None = None,
) -> None:
    """Write arrays to a file; it appears, or replaces another one, when it is complete.

    Args:
        path: The suffix selects the format: .h5, .hdf5, .npz or .npy. The arrays of an .npy file
            are its rows, of one shape; a .json file of the same name lists their keys.
        arrays: Distinct keys, and arrays.
        settings: Recorded in .h5, .hdf5 and .npz files.
        order: The keys of the rows of an .npy file; by default in the order of the arrays.
    """
    record = json.dumps({"settings": settings or {}}).encode()
    with ExitStack() as stack:
        for file in _files(path):
            stack.enter_context(lock(file))
        files = [stack.enter_context(atomic_file(file)) for file in _files(path)]
        if path.suffix == ".npy":
            rows, keys = files
            _write_npy(rows, keys, arrays, order)
        else:
            write = _write_npz if path.suffix == ".npz" else _write_hdf5
            write(files[0], arrays, record)


def _files(path: Path) -> list[Path]:
    return [path, path.with_suffix(".json")] if path.suffix == ".npy" else [path]


def _is_own(path: Path) -> bool:
    """Return whether elmore wrote a file, or an .npy and a .json file that belong together."""
    if path.suffix != ".npy":
        return bool(read_record(path))
    try:
        keys = json.loads(path.with_suffix(".json").read_bytes())
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        return len(rows) == len(keys) and all(isinstance(key, str) for key in keys)
    except (OSError, ValueError, TypeError, EOFError):
        return False


def _write_hdf5(path: Path, arrays: Arrays, record: bytes) -> None:
    with new_hdf5(path, record) as (file, disk):
        for key, array in arrays:
            with deferred_signals():
                disk.check()
                file.create_dataset(key, data=array)


def _write_npz(path: Path, arrays: Arrays, record: bytes) -> None:
    with new_npz(path, record) as add:
        for key, array in arrays:
            add(key, array)


def _write_npy(rows: Path, keys: Path, arrays: Arrays, order: Sequence[str] | None) -> None:
    """Write the rows at their places, and then the header, whose size depends on their number."""
    places = None if order is None else {key: place for place, key in enumerate(order)}
    written: list[str] = []
    row: np.ndarray | None = None
    with TemporaryFile(dir=rows.parent) as spool, rows.open("wb") as file:
        for key, array in arrays:
            row = np.ascontiguousarray(array)
            spool.seek(row.nbytes * (len(written) if places is None else places[key]))
            spool.write(row.data)
            written.append(key)
        if row is None:
            raise InputError("there are no arrays to write")
        header = {
            "descr": np.lib.format.dtype_to_descr(row.dtype),
            "fortran_order": False,
            "shape": (len(written), *row.shape),
        }
        np.lib.format.write_array_header_1_0(file, header)
        spool.seek(0)
        shutil.copyfileobj(spool, file)
    keys.write_text(json.dumps(written if order is None else list(order)), encoding="utf-8")
