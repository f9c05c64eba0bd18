"""Oracle: pyarrow, which reads what was written, and writes the same rows on its own."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.vectors import parquet
from elmore.vectors.parquet import ParquetWriter, read_vectors
from elmore.vectors.rows import VectorForm, VectorRow


def rows(lengths: list[int], form: VectorForm) -> list[VectorRow]:
    draw = np.random.default_rng(0)
    several = () if form.num_layers is None else (form.num_layers,)
    return [
        VectorRow(
            i, [f"w{k}" for k in range(n)], draw.normal(size=(*several, n, form.dim)).astype("f4")
        )
        for i, n in enumerate(lengths)
    ]


def write(path: Path, groups: list[list[VectorRow]], form: VectorForm) -> None:
    writer = ParquetWriter(path, form)
    for group in groups:
        writer.write(group)
    writer.close()


def by_pyarrow(written: list[VectorRow], form: VectorForm) -> pa.Table:
    columns = {
        "id": [row.id for row in written],
        "tokens": [row.tokens for row in written],
        "vectors": [row.vectors.astype(form.dtype).tolist() for row in written],
    }
    return pa.table(columns, schema=parquet._schema(form))


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), max_size=4),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([1, 2, 70]),
    st.sampled_from(["float32", "float16"]),
    st.sampled_from([1, 2, 5, 4096]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_files_hold_what_pyarrow_would_write(
    tmp_path: Path, groups: list[list[int]], num_layers, dim: int, dtype, words_per_page: int
) -> None:
    form = VectorForm(num_layers, dim, dtype)
    written = rows([n for group in groups for n in group], form)
    cuts = np.cumsum([0, *map(len, groups)])
    parts = [written[a:b] for a, b in itertools.pairwise(cuts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_WORDS_PER_PAGE", words_per_page)  # rows reach over pages
        write(tmp_path / "v.parquet", parts, form)
    found = pq.read_table(tmp_path / "v.parquet")
    assert found.schema == parquet._schema(form)
    assert found.equals(by_pyarrow(written, form))
    assert pq.read_metadata(tmp_path / "v.parquet").num_row_groups == len(groups)


def test_the_metadata_is_pyarrows(tmp_path: Path) -> None:
    form = VectorForm(3, 4, "float16")
    written = rows([2, 0, 5], form)
    write(tmp_path / "a.parquet", [written], form)
    pq.write_table(by_pyarrow(written, form), tmp_path / "b.parquet", **parquet._PLAINLY)
    ours, theirs = (pq.read_metadata(tmp_path / f"{name}.parquet") for name in "ab")
    assert ours.schema.equals(theirs.schema)
    assert ours.metadata == theirs.metadata
    for i in range(3):
        a, b = (metadata.row_group(0).column(i) for metadata in (ours, theirs))
        for name in ("physical_type", "num_values", "path_in_schema", "compression"):
            assert getattr(a, name) == getattr(b, name)


def test_one_column_can_be_read_alone(tmp_path: Path) -> None:
    form = VectorForm(3, 4, "float16")
    write(tmp_path / "v.parquet", [rows([2, 0], form), rows([1], form)], form)
    tokens = pq.read_table(tmp_path / "v.parquet", columns=["tokens"])
    assert tokens["tokens"].to_pylist() == [["w0", "w1"], [], ["w0"]]


def test_arrays_need_not_be_contiguous_or_of_the_type(tmp_path: Path) -> None:
    form = VectorForm(3, 4, "float16")
    vectors = np.random.default_rng(0).normal(size=(5, 3, 4)).swapaxes(0, 1)
    write(tmp_path / "v.parquet", [[VectorRow(7, ["w"] * 5, vectors)]], form)
    [row] = read_vectors(tmp_path / "v.parquet")
    np.testing.assert_array_equal(row.vectors, vectors.astype(np.float16))


def test_joining_holds_a_group_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form = VectorForm(3, 4, "float16")
    groups = [rows([2, 0, 5], form)] * 4
    write(tmp_path / "part.parquet", groups, form)
    held: list[int] = []
    real = parquet.write_all

    def write_all(file, buffers) -> None:
        held.append(sum(memoryview(buffer).nbytes for buffer in buffers))
        real(file, buffers)

    monkeypatch.setattr(parquet, "write_all", write_all)
    writer = ParquetWriter(tmp_path / "v.parquet", form)
    writer.append(tmp_path / "part.parquet")
    writer.close()
    size = (tmp_path / "v.parquet").stat().st_size
    assert sum(held) == size
    assert max(held[:-1]) < size / 4  # the last one is the footer
    assert pq.read_table(tmp_path / "v.parquet").equals(pq.read_table(tmp_path / "part.parquet"))


def test_a_part_that_was_cut_off_is_not_joined(tmp_path: Path) -> None:
    form = VectorForm(None, 4, "float32")
    write(tmp_path / "v.parquet", [rows([3], form)], form)
    whole = (tmp_path / "v.parquet").read_bytes()
    (tmp_path / "v.parquet").write_bytes(whole[:-20])
    with pytest.raises(OSError, match=r"v\.parquet"):
        ParquetWriter.count(tmp_path / "v.parquet")
