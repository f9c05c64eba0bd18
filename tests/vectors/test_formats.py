"""Oracles: pyarrow, h5py and numpy, each reading what was written on its own."""

import json
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from elmore.errors import InputError
from elmore.vectors.parquet import read_vectors
from elmore.vectors.parts import write_vectors
from elmore.vectors.rows import VectorForm, VectorRow

TOKENS = [["He", "sat"], [], ["\u00e9"], ["He", "sat"]]


def rows(form: VectorForm) -> list[VectorRow]:
    draw = np.random.default_rng(0)
    found = []
    for i, tokens in enumerate(TOKENS):
        shape = (len(tokens), form.dim)
        if form.num_layers is not None:
            shape = (form.num_layers, *shape)
        found.append(VectorRow(i, tokens, draw.normal(size=shape).astype(np.float32)))
    return found


FORMS = [
    VectorForm(3, 4, "float32"),
    VectorForm(3, 4, "float16"),
    VectorForm(None, 4, "float32"),
    VectorForm(None, 4, "float16"),
]


@pytest.mark.parametrize("form", FORMS)
def test_parquet(tmp_path: Path, form: VectorForm) -> None:
    path = tmp_path / "v.parquet"
    written = rows(form)
    assert write_vectors(path, lambda start: iter(written[start:]), form) == 4
    table = pq.read_table(path).to_pylist()
    for row, found in zip(written, table, strict=True):
        assert found["id"] == row.id
        assert found["tokens"] == row.tokens
        vectors = np.array(found["vectors"], dtype=form.dtype).reshape(row.vectors.shape)
        np.testing.assert_array_equal(vectors, row.vectors.astype(form.dtype))
    kind = str(pq.read_schema(path).field("vectors").type)
    assert "fixed_size_list" in kind
    assert ("halffloat" in kind) == (form.dtype == "float16")


@pytest.mark.parametrize("form", FORMS)
def test_parquet_is_read_back_as_arrays(tmp_path: Path, form: VectorForm) -> None:
    written = rows(form)
    write_vectors(tmp_path / "v.parquet", lambda start: iter(written[start:]), form)
    for row, found in zip(written, read_vectors(tmp_path / "v.parquet"), strict=True):
        assert (found.id, found.tokens) == (row.id, row.tokens)
        assert found.vectors.dtype == form.dtype
        np.testing.assert_array_equal(found.vectors, row.vectors.astype(form.dtype))


@pytest.mark.parametrize("suffix", ["h5", "hdf5"])
@pytest.mark.parametrize("form", FORMS)
def test_hdf5_has_the_layout_of_allennlps_command(
    tmp_path: Path, form: VectorForm, suffix: str
) -> None:
    written = rows(form)
    path = tmp_path / f"v.{suffix}"
    write_vectors(path, lambda start: iter(written[start:]), form)
    with h5py.File(path) as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        for row in written:
            np.testing.assert_array_equal(
                file[str(row.id)][...], row.vectors.astype(form.dtype), strict=True
            )
        index = json.loads(file["sentence_to_index"][0])
    assert index == {"He sat": "3", "": "1", "\u00e9": "2"}  # the last of equals, as there


@pytest.mark.parametrize("form", FORMS)
def test_npz_needs_no_pickle(tmp_path: Path, form: VectorForm) -> None:
    written = rows(form)
    write_vectors(tmp_path / "v.npz", lambda start: iter(written[start:]), form)
    with np.load(tmp_path / "v.npz", allow_pickle=False) as file:
        for row in written:
            np.testing.assert_array_equal(
                file[str(row.id)], row.vectors.astype(form.dtype), strict=True
            )
            assert json.loads(str(file[f"{row.id}.tokens"])) == row.tokens


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "v.parquet").write_text("no")
    with pytest.raises(InputError, match="is not a Parquet file of vectors"):
        list(read_vectors(tmp_path / "v.parquet"))
