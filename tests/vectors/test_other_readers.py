"""Vector files in pandas, Polars and DuckDB. Oracle: the rows that were written."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import elmore
from elmore.embedder import Embedder

TEXT = "He sat by the bank .\n\nBanks fail\n"

Rows = list[tuple[int, list[str], list]]


def read_with_pandas(path: Path) -> Rows:
    read = pd.read_parquet if path.suffix == ".parquet" else pd.read_feather
    # Nested lists are arrays of arrays.
    return [
        (row.id, list(row.tokens), [[w.tolist() for w in layer] for layer in row.vectors])
        for row in read(path).itertuples()
    ]


def read_with_polars(path: Path) -> Rows:
    read = pl.read_parquet if path.suffix == ".parquet" else pl.read_ipc
    return read(path).rows()


def read_with_duckdb(path: Path) -> Rows:
    return duckdb.sql(f"SELECT id, tokens, vectors FROM '{path}' ORDER BY id").fetchall()


READERS = [
    (read_with_pandas, ".parquet"),
    (read_with_pandas, ".arrow"),
    (read_with_polars, ".parquet"),
    (read_with_polars, ".arrow"),
    (read_with_duckdb, ".parquet"),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("read", "suffix"), READERS)
def test_rows_are_those_that_were_written(
    embedder: Embedder, tmp_path: Path, read: Callable[[Path], Rows], suffix: str, dtype: str
) -> None:
    text, output = tmp_path / "text.txt", tmp_path / f"vectors{suffix}"
    text.write_text(TEXT)
    elmore.embed_file(text, output, model=embedder, dtype=dtype)
    rows = read(output)
    expected = embedder.embed(TEXT.splitlines(), dtype=dtype)
    assert len(rows) == len(expected) == 3
    for (number, tokens, vectors), line, (i, array) in zip(
        rows, TEXT.splitlines(), enumerate(expected), strict=True
    ):
        assert number == i
        assert list(tokens) == line.split()
        actual = np.array(list(map(list, vectors)), dtype=dtype).reshape(array.shape)
        np.testing.assert_allclose(actual, array, rtol=0, atol=1e-6)
