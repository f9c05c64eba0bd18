"""Oracles: the buffers, joined; an array of bytes that is written at once."""

import os
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.vectors import disk
from elmore.vectors.disk import Beside, Disk, write_all


@given(st.lists(st.binary(max_size=9), max_size=20), st.integers(1, 7), st.sampled_from([1, 3, 99]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_all_is_written_however_little_a_call_takes(
    tmp_path: Path, buffers: list[bytes], bytes_a_call: int, most: int
) -> None:
    def some(file: int, views: list[memoryview]) -> int:
        assert len(views) <= most
        return os.write(file, b"".join(views)[:bytes_a_call])

    with pytest.MonkeyPatch.context() as patch, (tmp_path / "x").open("wb", buffering=0) as file:
        patch.setattr(disk, "_MOST", most)
        patch.setattr(disk, "_write_some", some)
        write_all(file, buffers)
    assert (tmp_path / "x").read_bytes() == b"".join(buffers)


@pytest.mark.parametrize("write", [disk._write_some, disk._write_first])
def test_arrays_go_as_they_are(tmp_path: Path, write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_write_some", write)
    arrays = [np.arange(6, dtype=np.float16).reshape(2, 3), np.zeros((3, 0)), np.arange(2000)]
    with (tmp_path / "x").open("wb", buffering=0) as file:
        write_all(file, [b"head", *arrays])
    assert (tmp_path / "x").read_bytes() == b"head" + b"".join(a.tobytes() for a in arrays)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "put", "start", "read"]),
            st.integers(0, 40),
            st.binary(min_size=1, max_size=9),
        ),
        max_size=30,
    ),
    st.integers(0, 20),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_writing_late_gives_what_writing_at_once_gives(
    tmp_path: Path, calls: list[tuple[str, int, bytes]], bytes_held: int
) -> None:
    expected = bytearray()
    with pytest.MonkeyPatch.context() as patch, Disk(tmp_path / "x") as file:
        patch.setattr(disk, "_BYTES_HELD", bytes_held)
        for kind, place, data in calls:
            if kind in ("write", "put"):
                expected.extend(b"\0" * (place - len(expected)))
                expected[place : place + len(data)] = data
            if kind == "write":
                file.seek(place)
                assert file.write(data) == len(data)
                assert file.tell() == place + len(data)
            elif kind == "put":
                file.put(place, np.frombuffer(data, dtype=np.uint8))
            elif kind == "start":
                file.start()
            else:
                file.seek(place)
                found = bytearray(9)  # zeros stay where nothing was ever written
                file.readinto(found)
                assert found == expected[place : place + 9].ljust(9, b"\0")
        assert file.seek(0, os.SEEK_END) == len(expected)
    assert (tmp_path / "x").read_bytes() == expected


def test_the_first_error_is_kept_and_nothing_is_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with Disk(tmp_path / "x") as file:
        file.write(b"before")
        file.finish()
        monkeypatch.setattr(disk, "_write_some", full)
        file.write(b"lost")
        file.finish()
        monkeypatch.undo()
        file.write(b"after")
        with pytest.raises(OSError, match="No space left"):
            file.check()
    assert (tmp_path / "x").read_bytes().rstrip(b"\0") == b"before"


def test_what_is_started_is_done_in_order_and_not_too_much_waits() -> None:
    beside, go_on, done = Beside(), Event(), []
    beside.start(go_on.wait)
    for i in range(1, Beside.AHEAD):
        beside.start(done.append, i)
    one_more = Thread(target=beside.start, args=(done.append, Beside.AHEAD))
    one_more.start()
    one_more.join(0.2)
    waits = one_more.is_alive()
    go_on.set()
    one_more.join()
    beside.close()
    assert waits
    assert done == list(range(1, Beside.AHEAD + 1))


@pytest.mark.parametrize("number", [0, 2, 5])
def test_an_error_comes_out_whenever_it_happened(number: int) -> None:
    def fail() -> None:
        raise OSError("no room")

    beside = Beside()
    with pytest.raises(OSError, match="no room"):
        for i in range(Beside.AHEAD + 2):
            beside.start(fail if i == number else int)
        beside.close()


def test_what_waits_behind_other_work_is_read(tmp_path: Path) -> None:
    with Disk(tmp_path / "x") as file:
        go_on = Event()
        file._beside.start(go_on.wait)
        for place, data in ((0, b"abc"), (3, b"def")):
            file.put(place, data)
            file.start()
        file.seek(1)
        found = bytearray(4)
        Thread(target=go_on.set).start()
        file.readinto(found)
        assert not file._leaving
    assert found == b"bcde"
