"""Files of arrays by key. Oracles: h5py, NumPy and JSON, which read them back."""

import json
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmore.errors import InputError
from elmore.vectors.keyed import check_key, check_keyed, write_keyed
from elmore.vectors.read import read_record

ARRAYS = {
    "sp|P1|A": np.arange(12, dtype=np.float32).reshape(4, 3),
    "\u03b1 beta.npz": np.ones((2, 3), dtype=np.float16),
    "0": np.zeros((0, 3), dtype=np.float32),
}
ROWS = {key: np.full((2, 3), i, dtype=np.float32) for i, key in enumerate("cab")}


@pytest.mark.parametrize("name", ["v.h5", "v.hdf5", "v.npz"])
def test_arrays_are_read_back_by_key(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deep" / name
    write_keyed(path, ARRAYS.items(), settings={"layers": "sum"})
    with np.load(path) if name == "v.npz" else h5py.File(path) as file:
        assert {*file} == {*ARRAYS}
        for key, array in ARRAYS.items():
            np.testing.assert_array_equal(file[key][...], array, strict=True)
    assert read_record(path) == {"settings": {"layers": "sum"}}
    assert [file.name for file in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("order", [None, ["a", "b", "c"]])
def test_rows_of_npy_files_are_in_the_order_of_the_json_file(
    tmp_path: Path, order: list[str] | None
) -> None:
    write_keyed(tmp_path / "v.npy", ROWS.items(), order=order)
    keys = json.loads((tmp_path / "v.json").read_text())
    assert keys == (order or list(ROWS))
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), [ROWS[key] for key in keys])


@pytest.mark.parametrize("name", ["v.h5", "v.npz", "v.npy"])
def test_a_failure_leaves_the_previous_files(tmp_path: Path, name: str) -> None:
    def fail() -> Iterator[tuple[str, np.ndarray]]:
        yield "a", np.ones(3)
        raise RuntimeError("no memory")

    path = tmp_path / name
    write_keyed(path, ROWS.items())
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(RuntimeError, match="no memory"):
        write_keyed(path, fail())
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["v.h5", "v.npz", "v.npy"])
def test_only_own_files_are_overwritten(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    check_keyed(path, overwrite=False)
    write_keyed(path, ROWS.items())
    check_keyed(path, overwrite=True)
    with pytest.raises(InputError, match="exists already"):
        check_keyed(path, overwrite=False)
    with pytest.raises(InputError, match="would replace the input"):
        check_keyed(path, overwrite=True, inputs=[path])
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="elmore did not write"):
        check_keyed(path, overwrite=True)


def test_npy_files_are_not_written_beside_unrelated_json_files(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text("{}")
    for overwrite, message in ((False, "exists already"), (True, "elmore did not write")):
        with pytest.raises(InputError, match=message):
            check_keyed(tmp_path / "v.npy", overwrite=overwrite)


def test_other_suffixes_are_rejected(tmp_path: Path) -> None:
    for name in ("v", "v.parquet", "v.json"):
        with pytest.raises(InputError, match=r"expected a name that ends in \.h5, \.hdf5, \.npz"):
            check_keyed(tmp_path / name, overwrite=False)


@pytest.mark.parametrize(
    ("key", "name"), [("a/b", "v.h5"), ("/", "v.hdf5"), (".", "v.h5"), ("a.npy", "v.npz")]
)
def test_keys_that_could_not_be_read_back_are_rejected(key: str, name: str) -> None:
    with pytest.raises(InputError, match="can't"):
        check_key(key, Path(name))
    check_key(key, Path("v.npy"))
