"""Oracle: an uninterrupted run."""

import json
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmore.errors import InputError
from elmore.vectors import parts
from elmore.vectors.parquet import ParquetWriter, read_vectors
from elmore.vectors.parts import write_vectors
from elmore.vectors.rows import VectorForm, VectorRow

FORM = VectorForm(2, 3, "float32")
ROWS = [
    VectorRow(i, ["word"] * (i % 4), np.full((2, i % 4, 3), i, dtype=np.float32)) for i in range(50)
]


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_GROUP_SIZE", 10)


def all_rows(start: int) -> Iterator[VectorRow]:
    return iter(ROWS[start:])


def until(stop: int, error: type[BaseException]) -> parts.RowsFrom:
    """Rows that end with an error, as if the process were struck."""

    def rows(start: int) -> Iterator[VectorRow]:
        yield from ROWS[start:stop]
        raise error("struck")

    return rows


def vectors_in(path: Path) -> dict[int, np.ndarray]:
    if path.suffix == ".parquet":
        return {row.id: row.vectors for row in read_vectors(path)}
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {int(name): file[name] for name in file if name.isdigit()}
    with h5py.File(path) as file:
        index = json.loads(file["sentence_to_index"][0])
        assert index == {" ".join(["word"] * n): str(46 + (n + 2) % 4) for n in range(4)}
        return {int(name): data[...] for name, data in file.items() if name.isdigit()}


def assert_complete(path: Path) -> None:
    found = vectors_in(path)
    assert sorted(found) == list(range(50))
    for i, expected in enumerate(ROWS):
        np.testing.assert_array_equal(found[i], expected.vectors)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["parquet", "h5", "npz"])
@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_parts_are_joined_and_gone(tmp_path: Path, seconds: float, suffix: str) -> None:
    path = tmp_path / f"v.{suffix}"
    assert write_vectors(path, all_rows, FORM, seconds_per_part=seconds) == 50
    assert_complete(path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("seconds", [0.0, 1000.0])
@pytest.mark.parametrize("suffix", ["parquet", "h5", "npz"])
def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, error: type[BaseException], seconds: float, suffix: str
) -> None:
    path = tmp_path / f"v.{suffix}"
    starts: list[int] = []

    def rest(start: int) -> Iterator[VectorRow]:
        starts.append(start)
        return all_rows(start)

    for stop in (20, 35):
        with pytest.raises(error, match="struck"):
            write_vectors(path, until(stop, error), FORM, resume=True, seconds_per_part=seconds)
        assert not path.exists()
    write_vectors(path, rest, FORM, resume=True, seconds_per_part=seconds)
    assert 25 < starts[0] <= 35  # a group at most is done again
    assert_complete(path)


@pytest.mark.parametrize("suffix", ["parquet", "h5", "npz"])
def test_a_killed_run_leaves_only_complete_parts(tmp_path: Path, suffix: str) -> None:
    """A part that was being written when the process died is written again."""
    path = tmp_path / f"v.{suffix}"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, until(30, KeyboardInterrupt), FORM, seconds_per_part=0.0)
    folder = tmp_path / f"v.{suffix}.parts"
    (folder / "000099.tmp").write_bytes(b"half a part")
    (folder / f"000001.{suffix}").write_bytes(b"half a part")  # by a disk that lost its power
    write_vectors(path, all_rows, FORM, resume=True)
    assert_complete(path)


def test_an_interrupted_run_is_never_lost_silently(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, until(30, KeyboardInterrupt), FORM)
    with pytest.raises(InputError, match=r"holds an interrupted run. Pass --resume"):
        write_vectors(path, all_rows, FORM)
    write_vectors(path, all_rows, FORM, overwrite=True)
    assert_complete(path)


def test_a_run_goes_on_only_with_its_own_settings(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, until(30, KeyboardInterrupt), FORM, settings={"model": "a"})
    with pytest.raises(InputError, match="had model = 'a', this one has 'b'"):
        write_vectors(path, all_rows, FORM, settings={"model": "b"}, resume=True)
    with pytest.raises(InputError, match="had num_layers = 2, this one has None"):
        write_vectors(
            path, all_rows, VectorForm(None, 3, "float32"), settings={"model": "a"}, resume=True
        )
    record = json.loads((tmp_path / "v.parquet.parts" / "run.json").read_text())
    assert record["dtype"] == "float32"


@pytest.mark.parametrize("seconds", [0.0, 30.0])
@pytest.mark.parametrize("times", [1, 1000])
def test_a_full_disk_leaves_the_parts_before_it(
    seconds: float, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if there is room again a moment later: what was not written must not be missed."""
    path = tmp_path / "v.parquet"
    real, written = ParquetWriter.write, []

    def full_after_three(self: ParquetWriter, rows: list[VectorRow]) -> None:
        written.append(1)
        if 3 < len(written) <= 3 + times:
            raise OSError(28, "No space left on device")
        real(self, rows)

    monkeypatch.setattr(ParquetWriter, "write", full_after_three)
    with pytest.raises(OSError, match="No space left"):
        write_vectors(path, all_rows, FORM, seconds_per_part=seconds)
    assert not path.exists()
    assert not list(tmp_path.rglob("*.tmp"))
    monkeypatch.setattr(ParquetWriter, "write", real)
    write_vectors(path, all_rows, FORM, resume=True)
    assert_complete(path)


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    path.write_text("precious")
    with pytest.raises(InputError, match=r"exists already.*--overwrite"):
        write_vectors(path, all_rows, FORM)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, until(9, KeyboardInterrupt), FORM, overwrite=True)
    assert path.read_text() == "precious"


def test_an_unknown_suffix_is_named_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in .parquet, .h5, .hdf5, .npz"):
        write_vectors(tmp_path / "v.csv", until(0, AssertionError), FORM)
