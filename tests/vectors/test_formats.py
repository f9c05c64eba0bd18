"""Vector file formats. Oracles: pyarrow, h5py and NumPy, which read the files without elmore."""

import gc
import json
import random
import re
import signal
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from elmore.errors import InputError
from elmore.vectors.formats import (
    FORMATS,
    HDF5File,
    write_arrow,
    write_hdf5,
    write_parquet,
)
from elmore.vectors.read import read_vectors
from elmore.vectors.rows import VectorForm, VectorRow, to_batch
from tests.vectors.test_rows import FORMS, SENTENCES, assert_same_rows, make_rows, values_of

Reader = Callable[[Path], dict[int, tuple[list[str], np.ndarray]]]


def with_pyarrow(table: pa.Table) -> dict[int, tuple[list[str], np.ndarray]]:
    dtype = "float16" if "halffloat" in str(table.schema.field("vectors").type) else "float32"
    return {
        row["id"]: (row["tokens"], np.array(row["vectors"], dtype)) for row in table.to_pylist()
    }


def with_h5py(path: Path) -> dict[int, tuple[list[str], np.ndarray]]:
    with h5py.File(path) as file:
        # Sentences in these tests are distinct, so all of them are in the index.
        index = json.loads(file["sentence_to_index"][0])
        assert len(file) == len(index) + 1
        return {int(name): (tokens.split(" "), file[name][...]) for tokens, name in index.items()}


def with_numpy(path: Path) -> dict[int, tuple[list[str], np.ndarray]]:
    with np.load(path, allow_pickle=False) as file:
        names = [name for name in file.files if name.isdigit()]
        assert len(file.files) == 2 * len(names)
        return {int(n): (json.loads(str(file[f"{n}.tokens"])), file[n]) for n in names}


READERS: dict[str, Reader] = {
    ".parquet": lambda path: with_pyarrow(pq.read_table(path)),
    ".arrow": lambda path: with_pyarrow(pa.ipc.open_file(path).read_all()),
    ".h5": with_h5py,
    ".npz": with_numpy,
}
every_format = pytest.mark.parametrize("suffix", READERS)


def write(path: Path, groups: list[list[VectorRow]], form: VectorForm) -> Path:
    FORMATS[path.suffix](path, form.schema, iter([to_batch(rows, form) for rows in groups]))
    return path


@every_format
@given(SENTENCES, FORMS)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
def test_file_contains_all_rows(
    tmp_path: Path, suffix: str, sentences: list[list[str]], form: VectorForm
) -> None:
    if suffix == ".h5":  # the index joins tokens with spaces and lists equal sentences once
        sentences = [[f"{i}", *"ab"[: i % 3]] for i in range(len(sentences))]
    rows = make_rows(sentences, form)
    path = write(tmp_path / f"v{suffix}", [rows[:3], rows[3:]] if rows else [], form)
    actual = READERS[suffix](path)
    assert sorted(actual) == [row.id for row in rows]
    for row in rows:
        tokens, vectors = actual[row.id]
        assert tokens == row.tokens
        np.testing.assert_array_equal(vectors.reshape(row.vectors.shape), row.vectors)
        assert vectors.dtype == form.dtype
    assert_same_rows(list(read_vectors(path)), rows, form.dtype)
    for row in rows:
        assert_same_rows([read_vectors(path, row.id)], [row], form.dtype)
    for number in (-1, len(rows)):
        with pytest.raises(InputError, match=rf"has no row {number}"):
            read_vectors(path, number)


@every_format
def test_damaged_vectors_are_never_returned(tmp_path: Path, suffix: str) -> None:
    """Oracle: the rows of the file before the damage."""
    form = VectorForm(2, 3, "float32")
    rows = make_rows([["a", "b"], ["c"], ["a", "b", "c"], []], form)
    path = write(tmp_path / f"v{suffix}", [rows[:2], rows[2:]], form)
    original, rng = path.read_bytes(), random.Random(0)
    refusals = 0
    for _ in range(400):
        damaged = bytearray(original)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            actual = list(read_vectors(path))
        except InputError:
            refusals += 1
        else:
            assert_same_rows(actual, rows, form.dtype)
    assert refusals > 20  # other bits are names or padding
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"or it is damaged \(.*\)$"):
        list(read_vectors(path))


def test_files_of_allennlp_are_read(tmp_path: Path) -> None:
    """Written here as AllenNLP 0.9 does; its tokens are what `str.split` returns."""
    path, arrays = tmp_path / "v.hdf5", [np.ones((3, 2, 4)), np.zeros((3, 1, 4))]
    index = {"the  bank": "0", "rates": "1"}
    with h5py.File(path, "w") as file:
        for i, vectors in enumerate(arrays):
            file[f"{i}"] = vectors
        kind = h5py.string_dtype("utf-8")
        file.create_dataset("sentence_to_index", data=[json.dumps(index)], dtype=kind)
    rows = list(read_vectors(path))
    assert [row.tokens for row in rows] == [["the", "bank"], ["rates"]]
    for row, vectors in zip(rows, arrays, strict=True):
        np.testing.assert_array_equal(row.vectors, vectors)
    with h5py.File(path, "a") as file:
        file["2"] = arrays[1]
        file["sentence_to_index"][0] = json.dumps(index | {"rates": "2"})
    assert read_vectors(path, 2).tokens == ["rates"]
    with pytest.raises(
        InputError, match=r"v.hdf5 does not contain sentence 1, because a later one"
    ):
        list(read_vectors(path))
    with h5py.File(path, "a") as file:
        del file["sentence_to_index"]
    with pytest.raises(
        InputError, match=r"v.hdf5 has no sentence_to_index.* with forget_sentences"
    ):
        list(read_vectors(path))


@every_format
def test_files_without_checksums_are_read(tmp_path: Path, suffix: str) -> None:
    """Files of earlier versions, written here by pyarrow and h5py."""
    form = VectorForm(None, 3, "float32")
    rows = make_rows([["a", "b"], ["c"]], form)
    path = write(tmp_path / f"v{suffix}", [rows], form)
    if suffix == ".arrow":
        with pa.ipc.new_file(path, form.schema) as writer:
            writer.write_batch(to_batch(rows, form))
    elif suffix == ".parquet":
        pq.write_table(pa.Table.from_batches([to_batch(rows, form)]), path)
    elif suffix == ".h5":
        with h5py.File(path, "a") as file:
            del file.attrs["elmore_crc32"]
    assert_same_rows(list(read_vectors(path)), rows, form.dtype)


@every_format
def test_long_sentence_is_written(tmp_path: Path, suffix: str) -> None:
    form = VectorForm(2, 3, "float16")
    rows = make_rows([["before"], [f"w{i}" for i in range(200_000)], ["after"]], form)
    actual = READERS[suffix](write(tmp_path / f"v{suffix}", [rows], form))
    for row in rows:
        assert actual[row.id][0] == row.tokens
        np.testing.assert_array_equal(actual[row.id][1], row.vectors, strict=True)


def test_signals_never_interrupt_the_hdf5_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends a signal in each write of the library, up to the last one, when the file is closed."""
    form = VectorForm(2, 3, "float32")
    groups = [make_rows([["He", "sat"], ["."]], form), make_rows([["Yes"]], form, first=2)]
    writes_left = 0
    handled: list[str] = []
    write_all = HDF5File.write

    def interrupt(*_: object) -> None:
        handled.append("in a write" if in_write else "later")
        raise KeyboardInterrupt

    def write_and_signal(self: HDF5File, data: bytes) -> int:
        nonlocal writes_left, in_write
        writes_left -= 1
        in_write = True
        if not writes_left:
            signal.raise_signal(signal.SIGTERM)
        in_write = False
        return write_all(self, data)

    in_write = False
    monkeypatch.setattr(HDF5File, "write", write_and_signal)
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        for number in count(1):
            writes_left = number
            with suppress(KeyboardInterrupt):
                write(tmp_path / "v.h5", groups, form)
            if writes_left > 0:
                break
    finally:
        signal.signal(signal.SIGTERM, before)
    assert handled == ["later"] * (number - 1)
    assert number > 10
    assert sorted(with_h5py(tmp_path / "v.h5")) == [0, 1, 2]


def test_arrow_and_parquet_have_the_same_columns(tmp_path: Path) -> None:
    form = VectorForm(3, 4, "float16")
    rows = make_rows([["He", "sat"], [], ["."]], form)
    arrow = pa.ipc.open_file(write(tmp_path / "v.arrow", [rows], form)).read_all()
    parquet = pq.read_table(write(tmp_path / "v.parquet", [rows], form))
    assert arrow.schema == parquet.schema == form.schema
    assert str(arrow.schema.field("vectors").type) == (
        "fixed_size_list<item: list<item: fixed_size_list<item: halffloat>[4]>>[3]"
    )
    assert arrow.equals(parquet)


def test_arrow_is_read_without_copies(tmp_path: Path) -> None:
    form = VectorForm(3, 4, "float16")
    rows = make_rows([["He", "sat"], ["."]], form)
    path = write(tmp_path / "v.arrow", [rows], form)
    gc.collect()
    before = pa.total_allocated_bytes()
    batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    values = values_of(batch)
    assert pa.total_allocated_bytes() <= before
    with path.open("rb+") as file:  # a view sees changes of the file
        file.seek(path.read_bytes().index(values.tobytes()))
        file.write(np.float16(42).tobytes())
    assert values[0] == 42


def test_parquet_row_groups_can_be_read_separately(tmp_path: Path) -> None:
    form = VectorForm(3, 4, "float32")
    rows = make_rows([["a", "b"], [], ["c"]], form)
    path = write(tmp_path / "v.parquet", [rows[:2], rows[2:]], form)
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups == 2
        assert file.read_row_group(1, columns=["tokens"])["tokens"].to_pylist() == [["c"]]


def test_hdf5_has_the_layout_of_the_allennlp_elmo_command(tmp_path: Path) -> None:
    form = VectorForm(3, 4, "float32")
    sentences = [["He", "sat"], [], ["\u00e9", '"'], ["He", "sat"]]
    rows = make_rows(sentences, form)
    with h5py.File(write(tmp_path / "v.h5", [rows], form)) as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        for row in rows:
            np.testing.assert_array_equal(file[str(row.id)][...], row.vectors, strict=True)
        index = file["sentence_to_index"]
        assert index.shape == (1,)
        assert isinstance(index[0], bytes)
        expected = {
            "He sat": "3",
            "": "1",
            '\u00e9 "': "2",
        }  # AllenNLP also keeps the last of equal sentences
        assert json.loads(index[0]) == json.loads(index.asstr()[0]) == expected


def test_hdf5_without_sentences_has_an_empty_index(tmp_path: Path) -> None:
    with h5py.File(write(tmp_path / "v.h5", [], VectorForm(3, 4, "float32"))) as file:
        assert json.loads(file["sentence_to_index"][0]) == {}


def test_npz_is_a_valid_zip_archive(tmp_path: Path) -> None:
    path = write(
        tmp_path / "v.npz",
        [make_rows([["a"], []], VectorForm(2, 3, "float32"))],
        VectorForm(2, 3, "float32"),
    )
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["0.npy", "0.tokens.npy", "1.npy", "1.tokens.npy"]


@every_format
def test_memory_does_not_grow_with_the_number_of_sentences(tmp_path: Path, suffix: str) -> None:
    """Measures memory held by Python and Arrow per sentence, after the first batches."""
    form = VectorForm(None, 2, "float16")
    per_batch, allocated = 250, []

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 16 * per_batch, per_batch):
            sentences = [[f"word{i}"] for i in range(first, first + per_batch)]
            yield to_batch(make_rows(sentences, form, first=first), form)
            allocated.append(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())

    tracemalloc.start()
    FORMATS[suffix](tmp_path / f"v{suffix}", form.schema, batches())
    tracemalloc.stop()
    # Bytes; a checksum of an HDF5 file has 4, the name of a dataset or an array far more.
    assert (allocated[-1] - allocated[3]) / (12 * per_batch) < 12


def test_hdf5_memory_does_not_grow_with_the_number_of_sentences(tmp_path: Path) -> None:
    """Measures memory of the HDF5 library: open objects, cached metadata, tracked free space."""
    form = VectorForm(None, 3, "float16")
    usage = []

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 8000, 1000):
            sentences = [["word"] * (i % 7) for i in range(1000)]
            yield to_batch(make_rows(sentences, form, first=first), form)
            [file] = h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
            objects = h5py.h5f.get_obj_count(file, h5py.h5f.OBJ_ALL)
            usage.append((objects, file.get_mdc_size()[2], file.get_freespace()))

    write_hdf5(tmp_path / "v.h5", form.schema, batches())
    objects, metadata, free_space = map(max, zip(*usage, strict=True))
    assert objects == 1
    assert metadata <= 2**21
    assert free_space <= 2**10


FULL_DISK = """
import resource, sys
import numpy as np
from pathlib import Path
from elmore.vectors.formats import FORMATS
from elmore.vectors.rows import VectorForm, VectorRow, to_batch
path, limits = Path(sys.argv[1]), map(int, sys.argv[2:])
form = VectorForm(None, 4, "float32")
rows = [VectorRow(i, ["w"] * (i % 9), np.ones((i % 9, 4), np.float32)) for i in range(9000)]
for limit in limits:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        batches = [to_batch(rows[i : i + 99], form) for i in range(0, 9000, 99)]
        FORMATS[path.suffix](path, form.schema, batches)
    except OSError as error:
        print("caught", error)
"""


@every_format
def test_full_disk_raises_oserror(tmp_path: Path, suffix: str) -> None:
    """A limit on the file size makes writes fail like a full disk."""
    pytest.importorskip("resource")
    limits = ("100", "50000", "400000")
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / f"v{suffix}"), *limits]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(re.findall("^caught .*File too large", result.stdout, re.MULTILINE)) == len(limits)


@every_format
def test_file_without_vectors_is_rejected(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    path.write_text("not vectors")
    with pytest.raises(InputError, match=r"is not a .* file of vectors"):
        list(read_vectors(path))
    if suffix in (".parquet", ".arrow"):
        table = pa.table({"id": [0], "vectors": [[1.0]]})
        {".parquet": write_parquet, ".arrow": write_arrow}[suffix](
            path, table.schema, table.to_batches()
        )
        with pytest.raises(InputError, match=r"is not a .* file of vectors"):
            list(read_vectors(path))
    with pytest.raises(InputError, match=r"ends in .parquet, .arrow, .h5, .hdf5, .npz"):
        list(read_vectors(tmp_path / "v.csv"))


def test_equal_and_empty_sentences_of_hdf5_are_read(tmp_path: Path) -> None:
    form = VectorForm(None, 2, "float32")
    rows = make_rows([["He", "sat"], [], ["He", "sat"], ["a"]], form)
    path = write(tmp_path / "v.hdf5", [rows], form)
    assert_same_rows(list(read_vectors(path)), rows, form.dtype)
    assert read_vectors(path, 0).tokens == ["He", "sat"]


@every_format
def test_lone_surrogates_are_replaced(tmp_path: Path, suffix: str) -> None:
    form = VectorForm(None, 2, "float32")
    rows = make_rows([["a\ud800b", "\udfff", "\U0001f600"]], form)
    path = write(tmp_path / f"v{suffix}", [rows], form)
    assert read_vectors(path, 0).tokens == ["a\ufffdb", "\ufffd", "\U0001f600"]


def test_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    for suffix in READERS:
        with pytest.raises(FileNotFoundError):
            list(read_vectors(tmp_path / f"v{suffix}"))
