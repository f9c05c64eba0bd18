"""Oracle: the buffers, joined."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.vectors import disk
from elmore.vectors.disk import write_all


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
