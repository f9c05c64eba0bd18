"""Partitions of a corpus. Oracles: `Embedder.embed`; the rows, bytes and times of files."""

import bz2
import gzip
import json
import lzma
import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.atomic import leftovers
from elmore.errors import InputError
from elmore.integrations import arrow, input_files, partitions
from elmore.integrations.arrow import ArrowEmbedder
from elmore.integrations.input_files import open_partition
from elmore.integrations.partitions import (
    PartitionEmbedder,
    find_partitions,
    open_output,
    run_settings,
)

LINES = ["The bank raised its rates.", "", "He sat by the bank of the river."]


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    arrow._load.cache_clear()


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """The same sentences in three formats."""
    parts = tmp_path / "parts"
    parts.mkdir()
    table = pa.table({"key": [*"abc"], "text": LINES})
    pq.write_table(table, parts / "one.parquet", row_group_size=2)
    (parts / "two.txt.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    (parts / "three.jsonl").write_text(
        "".join(json.dumps({"id": f"#{i}", "text": line}) + "\n" for i, line in enumerate(LINES))
    )
    return parts


def new_embedder(model: Path, output: Path, **options) -> PartitionEmbedder:
    output_format = options.pop("output_format", "parquet")
    replace_invalid = options.pop("replace_invalid", False)
    embed = ArrowEmbedder(model, device="cpu", **options)
    settings = run_settings(embed, replace_invalid=replace_invalid)
    open_output(output, settings)
    return PartitionEmbedder(
        embed, output, settings, output_format=output_format, replace_invalid=replace_invalid
    )


@pytest.mark.parametrize("output_format", ["parquet", "arrow"])
@pytest.mark.parametrize("layers", ["all", "top"])
def test_each_partition_becomes_a_file_with_its_columns_and_vectors(
    folder: Path, parts: Path, tmp_path: Path, output_format: str, layers: str
) -> None:
    embed = new_embedder(folder, tmp_path / "out", output_format=output_format, layers=layers)
    results = [embed(file) for file in find_partitions(f"{parts}/*")]
    assert [result.file.name for result in results] == [
        f"{name}.{output_format}" for name in ("one", "three", "two")
    ]
    assert {(result.rows, result.words, result.skipped) for result in results} == {(3, 15, False)}
    expected = elmore.load(folder, device="cpu").embed(LINES, layers=layers)
    for name, ids in (("one", [0, 1, 2]), ("two", [0, 1, 2]), ("three", ["#0", "#1", "#2"])):
        rows = [*elmore.read_vectors(tmp_path / "out" / f"{name}.{output_format}")]
        assert [row.id for row in rows] == ids
        for row, line, vectors in zip(rows, LINES, expected, strict=True):
            assert row.tokens == elmore.tokenize(line)
            np.testing.assert_allclose(row.vectors, vectors, rtol=0, atol=1e-6)
    if output_format == "parquet":
        columns = pq.read_table(tmp_path / "out" / "one.parquet", columns=["key", "text"])
        assert columns.to_pydict() == {"key": [*"abc"], "text": LINES}


def test_complete_outputs_are_kept(folder: Path, parts: Path, tmp_path: Path) -> None:
    for output_format in ("parquet", "arrow"):
        embed = new_embedder(folder, tmp_path / "out", output_format=output_format)
        first = embed(parts / "one.parquet")
        changed = first.file.stat().st_mtime_ns
        again = new_embedder(folder, tmp_path / "out", output_format=output_format)
        assert again(parts / "one.parquet") == first._replace(words=0, skipped=True)
        assert first.file.stat().st_mtime_ns == changed


@pytest.mark.parametrize("output_format", ["parquet", "arrow"])
def test_damaged_outputs_are_replaced(
    folder: Path, parts: Path, tmp_path: Path, output_format: str
) -> None:
    embed = new_embedder(folder, tmp_path / "out", output_format=output_format)
    output = embed(parts / "one.parquet").file
    complete = output.read_bytes()
    [second] = [row.vectors for row in elmore.read_vectors(output) if row.id == 2]
    value = complete.index(second[0, 0, :4].tobytes())  # of a vector, in the middle of the file
    damages = {
        "empty": b"",
        "cut": complete[: len(complete) // 2],
        "without its last byte": complete[:-1],
        "a flipped bit": complete[:value] + bytes([complete[value] ^ 1]) + complete[value + 1 :],
    }
    for name, damaged in damages.items():
        output.write_bytes(damaged)
        result = embed(parts / "one.parquet")
        assert not result.skipped, name
        assert output.read_bytes() == complete, name


def test_other_models_and_settings_are_not_mixed(
    folder: Path, parts: Path, tmp_path: Path, embedder: elmore.Embedder
) -> None:
    new_embedder(folder, tmp_path / "out")(parts / "one.parquet")
    embedder.save(tmp_path / "other")
    for model, options, message in [
        (tmp_path / "other", {}, "weights_hash"),
        (folder, {"layers": "top"}, "layers = 'all', not 'top'"),
        (folder, {"dtype": "float16"}, "dtype = 'float32', not 'float16'"),
        (folder, {"column": "key"}, "column = 'text', not 'key'"),
        (folder, {"tokenizer": "whitespace"}, "tokenizer = 'moses', not 'whitespace'"),
        (folder, {"precision": "bf16"}, "precision = 'fp32', not 'bf16'"),
    ]:
        with pytest.raises(InputError, match=message):
            new_embedder(model, tmp_path / "out", **options)
    # A machine of the cluster with another model
    embed = new_embedder(folder, tmp_path / "out")
    embed._embed = ArrowEmbedder(tmp_path / "other", device="cpu")
    with pytest.raises(InputError, match="the process that started this run has weights_hash"):
        embed(parts / "two.txt.gz")
    assert not (tmp_path / "out" / "two.parquet").exists()
    # An output that was copied from another run
    other = new_embedder(folder, tmp_path / "out2", layers="top")(parts / "one.parquet")
    other.file.replace(tmp_path / "out" / "one.parquet")
    with pytest.raises(InputError, match=r"one\.parquet has layers = 'top', not 'all'"):
        new_embedder(folder, tmp_path / "out")(parts / "one.parquet")


def test_files_that_elmore_did_not_write_are_kept(
    folder: Path, parts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    foreign = output / "one.parquet"
    pq.write_table(pa.table({"mine": [1]}), foreign)
    with pytest.raises(InputError, match="elmore did not write it"):
        new_embedder(folder, output)
    foreign.rename(tmp_path / "mine.parquet")
    embed = new_embedder(folder, output)
    (tmp_path / "mine.parquet").rename(foreign)
    with pytest.raises(InputError, match=r"elmore did not write .*out/one\.parquet"):
        embed(parts / "one.parquet")
    assert pq.read_table(foreign).to_pydict() == {"mine": [1]}
    (output / "run.json").write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        new_embedder(folder, output)


def test_output_of_an_input_that_changed_is_kept(folder: Path, parts: Path, tmp_path: Path) -> None:
    embed = new_embedder(folder, tmp_path / "out")
    output = embed(parts / "three.jsonl").file
    complete = output.read_bytes()
    (parts / "three.jsonl").write_text('{"id": "new", "text": "Banks fail"}\n')
    with pytest.raises(InputError, match="made from another version of this file"):
        embed(parts / "three.jsonl")
    assert output.read_bytes() == complete
    output.unlink()
    assert embed(parts / "three.jsonl").rows == 1


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_jsonl_is_read_in_all_compressed_formats(tmp_path: Path, suffix: str) -> None:
    lines = b'{"text": "Banks fail"}\n{"text": ""}\n'
    compress = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    compressed = compress.get(suffix, partial(pa.compress, codec="zstd", asbytes=True))(lines)
    file = tmp_path / f"a.jsonl{suffix}"
    file.write_bytes(compressed)
    batches = open_partition(file).batches
    assert pa.Table.from_batches(batches).to_pydict() == {"text": ["Banks fail", ""]}


# Values of one column in each line; `id` is absent in some.
COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-9, 9) | st.floats(-9, 9)),
    st.lists(st.none() | st.text(max_size=9) | st.dates().map(str)),
    st.lists(st.lists(st.integers(0, 9) | st.floats(0, 1), max_size=2)),
    st.lists(st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))),
)


@given(values=COLUMNS, block=st.integers(120, 400))
@settings(max_examples=50, deadline=None)
def test_jsonl_is_read_in_blocks_as_arrow_reads_all_of_it(values: list[Any], block: int) -> None:
    rows = [{"text": "", "id": value} for value in values] + [{"text": "last"}]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file = Path(folder, "a.jsonl")
        file.write_text("".join(f"{json.dumps(row)}\n\n" for row in rows))
        expected = pyarrow.json.read_json(file)
        patch.setattr(input_files, "_READ_BYTES", block)
        schema, batches = open_partition(file)
        assert schema == expected.schema
        assert pa.Table.from_batches(batches, schema).to_pylist() == expected.to_pylist()


def test_jsonl_line_without_an_end_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "_READ_BYTES", 100)
    (tmp_path / "a.jsonl").write_text(json.dumps([{"text": "Banks fail"}] * 9))
    with pytest.raises(InputError, match="more than 100 bytes without a line break"):
        open_partition(tmp_path / "a.jsonl")


def test_memory_does_not_depend_on_the_size_of_a_jsonl_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "_READ_BYTES", 2**16)
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "%s"}\n' % (b"Banks fail " * 90) * 20_000)  # 20 MB
    before = pa.total_allocated_bytes()
    rows, most = 0, 0
    for batch in open_partition(file).batches:
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 20_000
    assert most < 2**20


@pytest.mark.parametrize("name", ["a.parquet", "a.txt", "a.txt.xz"])
def test_empty_partition_has_an_empty_output(folder: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": pa.array([], pa.string())}), file)
    else:
        file.write_bytes(lzma.compress(b"") if name.endswith(".xz") else b"")
    for output_format in ("parquet", "arrow"):
        embed = new_embedder(folder, tmp_path / "out", output_format=output_format)
        result = embed(file)
        assert (result.rows, result.words) == (0, 0)
        assert [*elmore.read_vectors(result.file)] == []
        assert embed(file).skipped


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"PAR1 is not enough", "a.parquet"),
        ("a.txt", b"fine\n\xff\n", "line 2: byte 0xff"),
        ("a.txt.gz", gzip.compress(b"a line\n" * 9999)[:-20], "damaged .gz file"),
        ("a.jsonl.xz", lzma.compress(b'{"text": "a"}\n' * 9999)[:-20], "damaged .xz file"),
        ("a.jsonl", b'{"text": "a"}\n{"text": 1}\n', "a.jsonl"),
        ("a.jsonl", b'{"text": "a"}\n\nnot JSON\n', "a.jsonl: line 3: JSON parse error"),
        ("a.jsonl", b"", "a.jsonl: no JSON objects"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 9999)[:-20], "damaged .gz file"),
        ("a.jsonl", b'{"sentence": "a"}\n', "no column 'text'"),
    ],
)
def test_damaged_partition_is_rejected_by_name_and_leaves_nothing(
    folder: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    embed = new_embedder(folder, tmp_path / "out")
    with pytest.raises(InputError, match=message) as error:
        embed(tmp_path / name)
    assert str(error.value).count(name) >= 1
    assert "\n" not in str(error.value)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["run.json"]
    if name == "a.txt":
        assert (
            new_embedder(folder, tmp_path / "o2", replace_invalid=True)(tmp_path / name).rows == 2
        )


def test_partition_that_kills_its_process_is_given_up(
    folder: Path, parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = new_embedder(folder, tmp_path / "out")

    def die(*_: object) -> None:
        os._exit(9)

    monkeypatch.setattr(embed, "_write", die)
    for attempts in (1, 2, 3):
        child = os.fork()
        if not child:
            embed(parts / "one.parquet")
        os.waitpid(child, 0)
        assert len(leftovers(tmp_path / "out" / "one.parquet")) == attempts
    with pytest.raises(InputError, match="3 processes died while they embedded it"):
        embed(parts / "one.parquet")


def test_full_disk_is_an_error_of_the_system(
    folder: Path, parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(partitions.FORMATS, ".parquet", fail)
    with pytest.raises(OSError, match="No space left"):
        new_embedder(folder, tmp_path / "out")(parts / "one.parquet")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["run.json"]


def test_files_are_found_by_pattern_folder_and_list(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (parts / "notes.md").touch()
    expected = [parts / name for name in ("one.parquet", "three.jsonl", "two.txt.gz")]
    assert find_partitions(parts) == expected
    assert find_partitions(f"{parts}/*o*.[pt]*") == [expected[0], expected[2]]
    monkeypatch.chdir(tmp_path)
    assert find_partitions("parts/*.jsonl") == [expected[1]]
    files = ["parts/two.txt.gz", parts / "one.parquet", "parts/t*.gz"]
    assert find_partitions(files) == [
        expected[0],
        expected[2],
    ]


def test_files_that_do_not_fit_are_rejected(parts: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (parts / "one.txt").touch()
    (parts / "data.csv").touch()
    for files, message in [
        (f"{parts}/*.feather", "no files match"),
        (tmp_path / "empty", "no files match"),
        ([], "at least one file"),
        ([parts / "missing.txt"], "no files match .*missing.txt"),
        (f"{parts}/*.csv", "expected a name that ends in .parquet, .jsonl, .txt"),
        (f"{parts}/one.*", "would have the same output"),
    ]:
        with pytest.raises(InputError, match=message):
            find_partitions(files)


def test_batches_computed_ahead_are_those_that_are_yielded() -> None:
    batches = [pa.record_batch({"n": [n]}) for n in range(9)]
    assert [*partitions._ahead(iter(batches))] == batches

    def fail():
        yield batches[0]
        raise InputError("no more")

    ahead = partitions._ahead(fail())
    assert next(ahead) == batches[0]
    with pytest.raises(InputError, match="no more"):
        next(ahead)
