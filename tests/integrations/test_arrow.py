"""Arrow tables. Oracles: `Embedder.embed`; the rows of the input; PyArrow's own types."""

import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.errors import InputError
from elmore.integrations import arrow
from elmore.integrations.arrow import ArrowEmbedder
from elmore.vectors.rows import from_batch
from tests.integrations.test_doors import TEXTS

SENTENCES = ["He sat by the bank.", "", "Banks fail", None, "The bank of the river"]
pytestmark = pytest.mark.filterwarnings("ignore:most letters of the text are not Latin")


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    arrow._load.cache_clear()


@pytest.fixture
def table() -> pa.Table:
    return pa.table({"key": [*"abcde"], "text": SENTENCES, "year": [1, None, 3, 4, 5]})


def assert_rows(rows: pa.Table, sentences: list, expected: list[np.ndarray]) -> None:
    """Assert that the vectors of a table are those of an embedder."""
    assert rows.num_rows == len(sentences) == len(expected)
    with_ids = rows.append_column("id", pa.array(range(rows.num_rows)))
    parsed = [row for batch in with_ids.to_batches() for row in from_batch(batch)]
    for row, vectors in zip(parsed, expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", ["all", "top", 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_columns_are_kept_and_vectors_added(
    folder: Path, table: pa.Table, layers: int | str, dtype: str
) -> None:
    embed = ArrowEmbedder(folder, layers=layers, dtype=dtype, device="cpu")
    result = embed(table)
    assert result.select(table.column_names).equals(table)
    assert result.column_names == ["key", "text", "year", "tokens", "vectors"]
    assert result.schema == embed.schema(table.schema)
    sentences = [text or "" for text in SENTENCES]
    expected = elmore.load(folder, device="cpu").embed(sentences, layers=layers, dtype=dtype)
    assert_rows(result, sentences, expected)
    assert result["tokens"].to_pylist() == [elmore.tokenize(text) for text in sentences]
    result.validate(full=True)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string()),
        pa.large_list(pa.large_string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["tokens", "words"])
def test_lists_of_tokens_are_not_tokenized(folder: Path, kind: pa.DataType, name: str) -> None:
    tokens = [["He", "sat."], [], None, ["don't"]]
    table = pa.table({name: pa.array(tokens, kind), "n": [1, 2, 3, 4]})
    result = ArrowEmbedder(folder, column=name, device="cpu")(table)
    assert result["tokens"].to_pylist() == [["He", "sat."], [], [], ["don't"]]
    assert result["n"].to_pylist() == [1, 2, 3, 4]
    assert_rows(result, tokens, elmore.load(folder, device="cpu").embed([t or [] for t in tokens]))


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_every_type_of_string_is_read(folder: Path, kind: pa.DataType) -> None:
    texts = ["He sat.", None, "Banks fail"]
    column = pa.array(texts, pa.string()).cast(kind)
    result = ArrowEmbedder(folder, device="cpu")(pa.table({"text": column}))
    assert result["tokens"].to_pylist() == [["He", "sat", "."], [], ["Banks", "fail"]]


def test_hostile_texts_are_equal_to_the_bit(folder: Path) -> None:
    texts = [text for text in TEXTS if "\ud800" not in text]  # Arrow has no lone surrogates
    result = ArrowEmbedder(folder, layers="average", device="cpu")(pa.table({"text": texts}))
    expected = elmore.load(folder, device="cpu").embed(texts, layers="average")
    for text, row, vectors in zip(texts, result["vectors"], expected, strict=True):
        actual = np.array(row.as_py(), np.float32).reshape(vectors.shape)
        np.testing.assert_array_equal(actual, vectors, err_msg=ascii(text)[:80])


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.none() | st.text(max_size=30), max_size=5), max_size=6),
    st.sampled_from([1, 500, 2**24]),
)
def test_each_row_of_each_batch_is_there_once_and_in_order(
    folder: Path, batches: list[list[str | None]], batch_bytes: int
) -> None:
    rows = [(f"{i}.{j}", text) for i, batch in enumerate(batches) for j, text in enumerate(batch)]
    inputs = [
        pa.record_batch({"key": [f"{i}.{j}" for j in range(len(batch))], "text": batch}, _SCHEMA)
        for i, batch in enumerate(batches)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "BATCH_BYTES", batch_bytes)
        outputs = [*ArrowEmbedder(folder, layers="top", device="cpu").stream(inputs)]
    keys = [key for batch in outputs for key in batch["key"].to_pylist()]
    tokens = [words for batch in outputs for words in batch["tokens"].to_pylist()]
    assert keys == [key for key, _ in rows]
    assert tokens == [elmore.tokenize(text or "") for _, text in rows]
    lengths = [len(v) for batch in outputs for v in batch["vectors"].to_pylist()]
    assert lengths == [len(words) for words in tokens]


_SCHEMA = pa.schema({"key": pa.string(), "text": pa.string()})


def test_streaming_bounds_the_size_of_batches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "BATCH_BYTES", 10_000)
    batch = pa.record_batch({"text": ["He sat by the bank."] * 100})
    sizes = [part.num_rows for part in ArrowEmbedder(folder, device="cpu").stream([batch])]
    assert sum(sizes) == 100
    assert max(sizes) <= 10  # 6 words of 3 * 32 float32 take 2.3 kB


def test_variable_lists_hold_the_same_vectors(folder: Path, table: pa.Table) -> None:
    result = ArrowEmbedder(folder, variable_lists=True, device="cpu")(table)
    assert result["vectors"].type == pa.list_(pa.list_(pa.list_(pa.float32())))
    expected = ArrowEmbedder(folder, device="cpu")(table)
    assert result["vectors"].to_pylist() == expected["vectors"].to_pylist()


def test_pickle_has_no_weights_and_a_process_loads_the_model_once(
    folder: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    monkeypatch.setattr(arrow, "load", lambda *a, **k: loads.append(a) or elmore.load(*a, **k))
    embed = ArrowEmbedder(folder, device="cpu")
    first = embed(table)
    pickled = pickle.dumps(embed)
    assert len(pickled) < 1000
    assert pickle.loads(pickled)(table.to_batches()[0]).equals(first)
    assert len(loads) == 1


def test_threads_are_set(folder: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(arrow.torch, "set_num_threads", calls.append)
    monkeypatch.setattr(arrow.pa, "set_cpu_count", calls.append)
    ArrowEmbedder(folder, device="cpu")(table)
    assert calls == []
    ArrowEmbedder(folder, device="cpu", threads=3)(table)
    assert set(calls) == {3}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sentence": ["a"], "n": [1]}, "no column 'text'. Choose the column that has the sent"),
        ({}, "the table has no columns"),
        ({"text": [1]}, "of type int64; expected strings or lists of strings"),
        ({"text": [[1]]}, "of type list<item: int64>"),
        ({"text": [b"a"]}, "of type binary"),
        ({"text": ["a"], "vectors": [1]}, "a column 'vectors', as the output will have"),
        ({"text": ["a"], "tokens": [1]}, "a column 'tokens', as the output will have"),
        ({"text": [["a", None]]}, "row 0: token 1 is null"),
        ({"text": pa.array([b"a", b"\xff"]).view(pa.string())}, "damaged text"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_other_columns_are_rejected(folder: Path, columns: dict, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        ArrowEmbedder(folder, device="cpu")(pa.table(columns))


def test_columns_that_would_be_replaced_are_rejected(folder: Path) -> None:
    for name in ("tokens", "vectors"):
        with pytest.raises(InputError, match="would be replaced"):
            ArrowEmbedder(folder, column=name, device="cpu")(pa.table({name: ["a"]}))
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"])
    with pytest.raises(InputError, match="different names"):
        ArrowEmbedder(folder, device="cpu")(twice)


def test_invalid_settings_are_rejected(folder: Path, table: pa.Table) -> None:
    with pytest.raises(InputError, match="layers must be"):
        ArrowEmbedder(folder, layers=9, device="cpu")(table)
    with pytest.raises(InputError, match="dtype must be"):
        ArrowEmbedder(folder, dtype="int8")
    with pytest.raises(TypeError, match="name or path of a model, got Embedder"):
        ArrowEmbedder(elmore.load(folder, device="cpu"))


def test_datasets_map_takes_it(folder: Path, table: pa.Table) -> None:
    embed = ArrowEmbedder(folder, layers="top", device="cpu")
    mapped = Dataset(table).with_format("arrow").map(embed, batched=True, batch_size=2)
    assert mapped.column_names == ["key", "text", "year", "tokens", "vectors"]
    expected = embed(table)
    assert mapped[:]["tokens"].to_pylist() == expected["tokens"].to_pylist()
    for x, y in zip(mapped[:]["vectors"].to_pylist(), expected["vectors"].to_pylist(), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-6)
