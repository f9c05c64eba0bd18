"""Rows and record batches. Oracle: pyarrow, which builds the same batch from Python lists."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.vectors.rows import VectorForm, VectorRow, from_batch, to_batch

TOKENS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)  # no lone surrogates
SENTENCES = st.lists(st.lists(TOKENS, max_size=6), max_size=8)
FORMS = st.builds(
    VectorForm,
    st.sampled_from([None, 1, 3]),
    st.sampled_from([1, 2, 70]),
    st.sampled_from(["float32", "float16"]),
)


def make_rows(sentences: list[list[str]], form: VectorForm, *, first: int = 0) -> list[VectorRow]:
    """Rows whose vectors are consecutive views of one array, as the CUDA engine returns them."""
    layers = () if form.num_layers is None else (form.num_layers,)
    sizes = [len(tokens) * (form.num_layers or 1) * form.dim for tokens in sentences]
    block = np.random.default_rng(0).normal(size=sum(sizes)).astype(form.dtype)
    views = np.split(block, np.cumsum(sizes)[:-1]) if sizes else []
    return [
        VectorRow(i, tokens, view.reshape(*layers, len(tokens), form.dim))
        for i, (tokens, view) in enumerate(zip(sentences, views, strict=True), first)
    ]


def pyarrow_batch(rows: list[VectorRow], form: VectorForm) -> pa.RecordBatch:
    columns = {
        "id": [row.id for row in rows],
        "tokens": [row.tokens for row in rows],
        "vectors": [nested_lists(row.vectors.astype(form.dtype)) for row in rows],
    }
    return pa.record_batch(columns, schema=form.schema)


def nested_lists(array: np.ndarray) -> list:
    """Like `tolist`, but of NumPy's scalars: pyarrow 17 makes no float16 of Python's floats."""
    return list(array) if array.ndim == 1 else [nested_lists(part) for part in array]


def assert_same_rows(actual: list[VectorRow], expected: list[VectorRow], dtype: str) -> None:
    assert [(row.id, row.tokens) for row in actual] == [(row.id, row.tokens) for row in expected]
    for row, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(row.vectors, other.vectors.astype(dtype), strict=True)


def values_of(batch: pa.RecordBatch) -> np.ndarray:
    values = batch.column("vectors")
    while pa.types.is_nested(values.type):
        values = values.flatten()
    return values.to_numpy(zero_copy_only=True)


@given(SENTENCES, FORMS)
def test_record_batch_equals_pyarrow(sentences: list[list[str]], form: VectorForm) -> None:
    rows = make_rows(sentences, form)
    batch = to_batch(rows, form)
    batch.validate(full=True)
    assert batch.equals(pyarrow_batch(rows, form))


@given(SENTENCES, FORMS, st.data())
def test_rows_are_read_from_any_slice_of_a_batch(
    sentences: list[list[str]], form: VectorForm, data: st.DataObject
) -> None:
    rows = make_rows(sentences, form, first=7)
    start = data.draw(st.integers(0, len(rows)))
    count = data.draw(st.integers(0, len(rows)))
    batch = pyarrow_batch(rows, form).slice(start, count)
    assert_same_rows(list(from_batch(batch)), rows[start : start + count], form.dtype)


def test_consecutive_views_are_not_copied() -> None:
    form = VectorForm(3, 4, "float16")
    rows = make_rows([["a", "b"], [], ["c"], ["d", "e"]], form)
    block = rows[0].vectors.base
    for subset in (rows, rows[2:], rows[:1]):
        assert np.shares_memory(values_of(to_batch(subset, form)), block)


@given(st.permutations(range(4)), st.integers(1, 4))
def test_rows_in_any_order_are_read_back(order: list[int], count: int) -> None:
    form = VectorForm(None, 2, "float32")
    rows = make_rows([["a", "b"], ["c"], [], ["d", "e", "f"]], form)
    subset = [rows[i] for i in order[:count]]
    assert_same_rows(list(from_batch(to_batch(subset, form))), subset, form.dtype)


def test_vectors_from_separate_arrays_are_concatenated() -> None:
    form = VectorForm(None, 2, "float32")
    rows = make_rows([["a"], ["b"]], form) + make_rows([["c"]], form, first=2)
    rows.append(VectorRow(3, ["d"], np.ones((1, 2), np.float32)))  # owns its memory
    assert_same_rows(list(from_batch(to_batch(rows, form))), rows, form.dtype)


def test_arrays_that_are_adjacent_in_memory_are_concatenated() -> None:
    form = VectorForm(None, 2, "float32")
    memory = np.arange(8, dtype=np.float32).tobytes()
    blocks = [np.frombuffer(memory, np.float32, 4, offset) for offset in (0, 16)]
    rows = [VectorRow(i, ["a", "b"], block.reshape(2, 2)) for i, block in enumerate(blocks)]
    assert rows[0].vectors.base is not rows[1].vectors.base
    assert_same_rows(list(from_batch(to_batch(rows, form))), rows, form.dtype)


def test_noncontiguous_float64_vectors_are_converted() -> None:
    form = VectorForm(3, 4, "float16")
    vectors = np.random.default_rng(0).normal(size=(5, 3, 4)).swapaxes(0, 1)
    rows = [VectorRow(7, ["w"] * 5, vectors)]
    assert_same_rows(list(from_batch(to_batch(rows, form))), rows, form.dtype)


def test_vectors_column_of_another_type_is_rejected() -> None:
    columns = {"id": [0], "tokens": [["a"]], "vectors": [[1.0]]}
    with pytest.raises(ValueError, match="unexpected type of the vectors"):
        list(from_batch(pa.record_batch(columns)))
