"""Resumable writing of vectors. Oracle: pyarrow, h5py and NumPy, which read back all rows."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.errors import InputError
from elmore.vectors import parts
from elmore.vectors.formats import FORMATS, write_arrow
from elmore.vectors.parts import Saved, write_vectors
from elmore.vectors.rows import VectorForm, VectorRow, to_batch
from tests.vectors.test_formats import READERS

FORM = VectorForm(2, 3, "float32")
ROWS = [
    VectorRow(i, [f"{i}", *["word"] * (i % 4)], np.full((2, 1 + i % 4, 3), i, dtype=np.float32))
    for i in range(50)
]

every_format = pytest.mark.parametrize("suffix", READERS)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "BATCH_BYTES", 2500)  # bytes of about five rows


def all_rows(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
    assert saved.text_crc32 == 10 * saved.rows
    assert saved.window_start == 2 * saved.rows
    return (
        (row, Saved(row.id + 1, 10 * (row.id + 1), 2 * (row.id + 1))) for row in ROWS[saved.rows :]
    )


def fail_at(stop: int, error: type[BaseException]) -> parts.RowsAfter:
    """Yield the rows before `stop`, then raise an error."""

    def rows(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        yield from islice(all_rows(saved), stop - saved.rows)
        raise error("interrupted")

    return rows


def assert_rows(path: Path) -> None:
    actual = READERS[path.suffix](path)
    assert sorted(actual) == list(range(50))
    for row in ROWS:
        tokens, vectors = actual[row.id]
        assert tokens == row.tokens
        np.testing.assert_array_equal(vectors, row.vectors, strict=True)


def assert_complete(path: Path) -> None:
    assert_rows(path)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@every_format
def test_complete_run_leaves_only_its_output(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    assert write_vectors(path, all_rows, FORM) == 50
    assert_complete(path)


@every_format
def test_run_without_rows_writes_an_empty_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    assert write_vectors(path, lambda start: iter(()), FORM) == 0
    assert READERS[suffix](path) == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@every_format
def test_interrupted_run_is_resumed(
    tmp_path: Path, error: type[BaseException], suffix: str
) -> None:
    path = tmp_path / f"v{suffix}"
    starts: list[int] = []

    def rest(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        starts.append(saved.rows)
        return all_rows(saved)

    for stop in (20, 35):
        with pytest.raises(error, match="interrupted"):
            write_vectors(path, fail_at(stop, error), FORM, resume=True)
        assert not path.exists()
    assert write_vectors(path, rest, FORM, resume=True) == 50
    assert 25 < starts[0] <= 35  # rows of the incomplete batch are computed again
    assert_complete(path)


@every_format
def test_run_interrupted_during_conversion_is_resumed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    with pytest.raises(RuntimeError, match="interrupted"):
        write_vectors(path, fail_at(30, RuntimeError), FORM)

    def interrupt(batches: Iterable[Any], description: str) -> Iterator[Any]:
        assert description == f"batches converted to {suffix}"
        yield next(iter(batches))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, all_rows, FORM, resume=True, progress=interrupt)
    assert not path.exists()
    assert [file.name for file in tmp_path.iterdir()] == [f"v{suffix}.parts"]
    (tmp_path / f".v{suffix}.01234567.tmp").write_bytes(b"half of it")  # as a killed process does
    starts: list[int] = []
    write_vectors(
        path, lambda saved: starts.append(saved.rows) or all_rows(saved), FORM, resume=True
    )
    assert starts == [50]
    assert_complete(path)


def test_complete_batches_of_a_truncated_arrow_file_are_read(tmp_path: Path) -> None:
    """The file is truncated after every number of bytes, as if a write had been killed."""
    groups = [ROWS[i : i + 4] for i in range(0, 20, 4)]
    batches = [to_batch(rows, FORM) for rows in groups]
    sizes = [0]
    for count in range(1, len(batches) + 1):
        write_arrow(tmp_path / "v.arrow", FORM.schema, batches[:count])
        sizes.append((tmp_path / "v.arrow").stat().st_size)
    intact = (tmp_path / "v.arrow").read_bytes()
    counts = []
    for size in range(len(intact) + 1):
        source = pa.BufferReader(intact[:size])
        actual = [batch for batch, _ in parts._complete_batches(source, FORM.schema)]
        assert pa.Table.from_batches(actual, FORM.schema).equals(
            pa.Table.from_batches(batches[: len(actual)], FORM.schema)
        )
        counts.append(len(actual))
    assert counts == sorted(counts)
    assert set(counts) == set(range(6))
    for count, size in enumerate(sizes):
        assert counts[size] >= count


@every_format
@given(st.floats(0, 1))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15
)
def test_run_is_resumed_from_a_part_truncated_anywhere(
    tmp_path: Path, suffix: str, fraction: float
) -> None:
    path = tmp_path / f"v{suffix}"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(40, KeyboardInterrupt), FORM, overwrite=True)
    [part] = (tmp_path / f"v{suffix}.parts").glob("*.arrow")
    intact = part.read_bytes()
    part.write_bytes(intact[: int(fraction * len(intact))])
    write_vectors(path, all_rows, FORM, resume=True, overwrite=True)
    assert_complete(path)


def test_parts_after_a_damaged_one_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    for stop in (15, 30, 45):
        with pytest.raises(KeyboardInterrupt):
            write_vectors(path, fail_at(stop, KeyboardInterrupt), FORM, resume=True)
    damaged = tmp_path / "v.parquet.parts" / "000001.arrow"
    damaged.write_bytes(damaged.read_bytes()[:1500])
    starts: list[int] = []
    write_vectors(
        path, lambda saved: starts.append(saved.rows) or all_rows(saved), FORM, resume=True
    )
    assert starts[0] < 30
    assert_complete(path)


def test_part_damaged_during_the_run_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(30, KeyboardInterrupt), FORM)

    def rows(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        yield from all_rows(saved)
        (tmp_path / "v.npz.parts" / "000000.arrow").write_bytes(b"")

    with pytest.raises(OSError, match=r"50 rows in .* are damaged"):
        write_vectors(path, rows, FORM, resume=True)
    assert not path.exists()


@pytest.mark.parametrize("leftover", [None, "000000.arrow", ".run.json.01234567.tmp"])
def test_run_killed_before_its_first_batch_starts_over(
    tmp_path: Path, leftover: str | None
) -> None:
    for resume in (False, True):
        path = tmp_path / f"{resume}" / "v.arrow"
        path.with_name("v.arrow.parts").mkdir(parents=True)
        if leftover:
            (path.with_name("v.arrow.parts") / leftover).write_text("half")
        write_vectors(path, all_rows, FORM, resume=resume)
        assert_rows(path)


@pytest.mark.parametrize(
    "record",
    [
        "", '{"mod', "[]", "{}", '{"model": "a"}', '{"id": "x", "settings": 3}',
        '{"id": "x", "settings": {}, "result": 5}',
        '{"id": "x", "settings": {}, "result": {"a": 1}}',
    ],
)  # fmt: skip
def test_unreadable_record_of_a_run_is_reported(tmp_path: Path, record: str) -> None:
    path = tmp_path / "v.arrow"
    (tmp_path / "v.arrow.parts").mkdir()
    (tmp_path / "v.arrow.parts" / "run.json").write_text(record)
    for resume in (False, True):
        with pytest.raises(InputError, match=r"run.json is "):
            write_vectors(path, all_rows, FORM, resume=resume)
    write_vectors(path, all_rows, FORM, overwrite=True)
    assert_complete(path)


def test_every_damaged_byte_of_the_record_is_found(tmp_path: Path) -> None:
    """With another id of the run, its parts would be deleted."""
    path = tmp_path / "v.npz"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(30, KeyboardInterrupt), FORM, settings={"layers": 2})
    record = tmp_path / "v.npz.parts" / "run.json"
    content = record.read_bytes()
    for place in range(len(content)):
        if not content[place : place + 1].isspace():  # other white space may be valid JSON, too
            record.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(InputError, match=r"run.json is (damaged|not JSON)"):
                write_vectors(path, all_rows, FORM, settings={"layers": 2}, resume=True)
    record.write_bytes(content)
    write_vectors(path, all_rows, FORM, settings={"layers": 2}, resume=True)
    assert_complete(path)


def interrupt_three_times(path: Path) -> list[Path]:
    """Write parts with rows up to about 15, 30 and 45; return them."""
    for stop in (15, 30, 45):
        with pytest.raises(KeyboardInterrupt):
            write_vectors(path, fail_at(stop, KeyboardInterrupt), FORM, resume=True)
    return sorted(path.with_name(f"{path.name}.parts").glob("*.arrow"))


def zero_the_middle(part: Path) -> None:
    content = bytearray(part.read_bytes())
    middle = len(content) // 2
    content[middle - 500 : middle + 500] = bytes(1000)
    part.write_bytes(content)


@pytest.mark.parametrize("damage", [Path.unlink, zero_the_middle])
@pytest.mark.parametrize("number", [0, 1, 2])
@every_format
def test_rows_of_a_lost_or_damaged_part_are_computed_again(
    tmp_path: Path, suffix: str, number: int, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / f"v{suffix}"
    damage(interrupt_three_times(path)[number])
    starts: list[int] = []
    write_vectors(
        path, lambda saved: starts.append(saved.rows) or all_rows(saved), FORM, resume=True
    )
    assert starts[0] <= 15 * (number + 1)
    assert_complete(path)


def test_every_damaged_byte_is_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    part = interrupt_three_times(path)[1]
    copy = tmp_path / "copy"
    shutil.copytree(part.parent, copy)
    content = part.read_bytes()
    for place in range(0, len(content), 37):
        shutil.copytree(copy, part.parent, dirs_exist_ok=True)
        part.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        write_vectors(path, all_rows, FORM, resume=True, overwrite=True)
        assert_rows(path)


def test_parts_of_another_run_are_ignored(tmp_path: Path) -> None:
    path, other = tmp_path / "v.npz", tmp_path / "other" / "v.npz"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(15, KeyboardInterrupt), FORM)
    wrong = [row._replace(vectors=row.vectors + 1) for row in ROWS]

    def rows(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        yield from ((row, Saved(row.id + 1, 0, 0)) for row in wrong[saved.rows :])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_vectors(other, rows, FORM)
    for name in ("000000.arrow", "000001.arrow", "000007.arrow"):
        part = tmp_path / "v.npz.parts" / name
        if not part.exists():
            shutil.copy(tmp_path / "other" / "v.npz.parts" / "000000.arrow", part)
    shutil.rmtree(tmp_path / "other")
    write_vectors(path, all_rows, FORM, resume=True)
    assert_complete(path)


@pytest.mark.parametrize("point", ["before the rename", "after the rename", "during the cleanup"])
@every_format
def test_run_killed_while_it_is_published_is_complete(
    tmp_path: Path, suffix: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"v{suffix}"
    replace, remove = Path.replace, parts._Run.remove

    def killed_by_rename(file: Path, target: Path) -> None:
        if target == path and point == "before the rename":
            raise KeyboardInterrupt
        replace(file, target)
        if target == path and point == "after the rename":
            raise KeyboardInterrupt

    def killed_by_cleanup(run: parts._Run) -> None:
        if path.exists():
            for part in run.folder.glob("*.arrow"):
                part.unlink()
            raise KeyboardInterrupt
        remove(run)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed_by_rename)
        patch.setattr(parts._Run, "remove", killed_by_cleanup)
        with pytest.raises(KeyboardInterrupt):
            write_vectors(path, all_rows, FORM)

    def no_rows(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        assert saved[:2] == (50, 500)  # all rows are saved
        return iter(())

    assert write_vectors(path, no_rows, FORM, resume=True) == 50
    assert_complete(path)


def test_published_file_that_was_moved_away_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v.h5"
    remove = parts._Run.remove
    monkeypatch.setattr(parts._Run, "remove", lambda run: None)
    write_vectors(path, all_rows, FORM)
    monkeypatch.setattr(parts._Run, "remove", remove)
    path.unlink()
    assert write_vectors(path, all_rows, FORM, resume=True) == 50
    assert_complete(path)


def test_output_that_is_being_written_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "v.arrow"

    def rows(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        for resume in (False, True):
            with pytest.raises(InputError, match="another process is writing to"):
                write_vectors(path, all_rows, FORM, resume=resume, overwrite=True)
        yield from all_rows(saved)

    write_vectors(path, rows, FORM)
    assert_complete(path)


def test_unrelated_files_are_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    (tmp_path / "v.h5.parts").mkdir()
    (tmp_path / "v.h5.parts" / "notes.txt").write_text("precious")
    write_vectors(path, all_rows, FORM)
    write_vectors(path, all_rows, FORM, overwrite=True)
    assert_rows(path)
    assert [p.name for p in (tmp_path / "v.h5.parts").iterdir()] == ["notes.txt"]


SLOW_WRITER = """
import sys, time
from pathlib import Path
import numpy as np
from elmore.vectors import formats, parts
from elmore.vectors.rows import VectorForm, VectorRow
form = VectorForm(2, 3, "float32")
rows = [
    VectorRow(i, [f"{i}", *["word"] * (i % 4)], np.full((2, 1 + i % 4, 3), i, dtype=np.float32))
    for i in range(50)
]
parts.BATCH_BYTES = 2500
convert = formats.from_batch
def slowly(items):
    for item in items:
        time.sleep(0.004)
        yield item
formats.from_batch = lambda batch: slowly(convert(batch))
print("started", flush=True)
def rows_after(saved):
    return ((row, parts.Saved(row.id + 1, 0, 0)) for row in slowly(rows[saved.rows:]))
parts.write_vectors(Path(sys.argv[1]), rows_after, form, resume=True)
"""


@every_format
def test_run_killed_at_random_moments_is_resumed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    for delay in np.random.default_rng(0).uniform(0, 0.15, 4):
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW_WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if path.exists():
            break
    else:
        subprocess.run(
            [sys.executable, "-c", SLOW_WRITER, str(path)], check=True, capture_output=True
        )
    assert_rows(path)


def test_interrupted_run_is_replaced_only_with_the_overwrite_option(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(30, KeyboardInterrupt), FORM)
    with pytest.raises(InputError, match=r"holds an interrupted run\. Use the resume option"):
        write_vectors(path, all_rows, FORM)
    write_vectors(path, all_rows, FORM, overwrite=True)
    assert_complete(path)


def test_run_is_resumed_only_with_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(30, KeyboardInterrupt), FORM, settings={"model": "a"})
    with pytest.raises(InputError, match="has model = 'a', not 'b'"):
        write_vectors(path, all_rows, FORM, settings={"model": "b"}, resume=True)
    with pytest.raises(InputError, match="has num_layers = 2, not None"):
        write_vectors(
            path, all_rows, VectorForm(None, 3, "float32"), settings={"model": "a"}, resume=True
        )
    record = json.loads((tmp_path / "v.parquet.parts" / "run.json").read_text())
    assert record["settings"]["dtype"] == "float32"


def test_interrupted_run_with_other_settings_than_the_output_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    write_vectors(path, all_rows, FORM, settings={"model": "a"})
    other = {"model": "b"}
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(30, KeyboardInterrupt), FORM, settings=other, overwrite=True)
    with pytest.raises(InputError):
        write_vectors(path, all_rows, FORM, settings={"model": "a"}, resume=True)
    assert (tmp_path / "v.parquet.parts").exists()
    write_vectors(path, all_rows, FORM, settings=other, resume=True, overwrite=True)
    assert_complete(path)


class FailingWriter:
    """A writer of record batches that fails near the end of the fourth one."""

    def __init__(self, file: pa.NativeFile, schema: pa.Schema) -> None:
        self._file, self._real, self.calls = file, REAL_WRITER(file, schema), 0

    def write_batch(self, batch: pa.RecordBatch, metadata: dict[str, str]) -> None:
        self.calls += 1
        if self.calls == 4:
            self._file.write(
                batch.serialize()[:-40]
            )  # bytes written later would complete the batch
            raise OSError(28, "No space left on device")
        self._real.write_batch(batch, metadata)

    def close(self) -> None:
        self._real.close()


REAL_WRITER: Callable[..., Any] = pa.ipc.new_file


def test_no_batch_is_written_after_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if disk space becomes available again, the file ends with an incomplete batch."""
    path = tmp_path / "v.parquet"
    monkeypatch.setattr(pa.ipc, "new_file", FailingWriter)
    with pytest.raises(OSError, match="No space left"):
        write_vectors(path, all_rows, FORM)
    assert not path.exists()
    monkeypatch.undo()
    monkeypatch.setattr(parts, "BATCH_BYTES", 2500)
    starts: list[int] = []
    write_vectors(
        path, lambda saved: starts.append(saved.rows) or all_rows(saved), FORM, resume=True
    )
    assert 10 < starts[0] < 20  # three batches were saved
    assert_complete(path)


def test_full_disk_at_the_first_batch_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(parts, "BATCH_BYTES", 10**9)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (1500, before[1])
    )  # enough for run.json and the schema
    try:
        with pytest.raises(OSError, match=r"File too large.*v\.arrow'"):
            write_vectors(tmp_path / "v.arrow", all_rows, FORM)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".parquet", ".h5", ".npz"])
def test_full_disk_during_conversion_is_reported_with_the_path(tmp_path: Path, suffix: str) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / f"v{suffix}"
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(45, KeyboardInterrupt), FORM)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))  # less than the output
    try:
        with pytest.raises(OSError, match=rf"File too large.*v\{suffix}'"):
            write_vectors(path, all_rows, FORM, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not path.exists()
    write_vectors(path, all_rows, FORM, resume=True)
    assert_complete(path)


def test_queue_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is blocked, batches of any size are accepted until the queue is full."""
    rows = [VectorRow(i, ["w"], np.zeros((2, 1, 3), np.float32)) for i in range(100)]
    small, large = to_batch(rows[:5], FORM), to_batch(rows, FORM)
    monkeypatch.setattr(parts, "QUEUE_BYTES", 10 * small.nbytes + large.nbytes)
    accepted: list[int] = []
    disk_ready = Event()

    def produce() -> None:
        with parts._BackgroundWriter(tmp_path / "v.arrow", FORM.schema) as writer:
            writer._writer_thread.submit(disk_ready.wait)
            for batch in [small] * 3 + [large] + [small] * 20:
                writer.write(batch, {})
                accepted.append(batch.nbytes)

    thread = Thread(target=produce)
    thread.start()
    thread.join(0.5)
    accepted_while_blocked = list(accepted)
    disk_ready.set()
    thread.join()
    assert sum(accepted_while_blocked) == parts.QUEUE_BYTES
    assert len(accepted) == 24
    assert pa.ipc.open_file(tmp_path / "v.arrow").read_all().num_rows == 23 * 5 + 100


def test_batch_larger_than_the_queue_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "QUEUE_BYTES", 1)
    write_vectors(tmp_path / "v.arrow", all_rows, FORM)
    assert_complete(tmp_path / "v.arrow")


def test_batch_is_complete_after_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "BATCH_BYTES", 10**9)
    for seconds, count in ((0.0, 50), (1000.0, 1)):
        monkeypatch.setattr(parts, "BATCH_SECONDS", seconds)
        assert len(list(parts._batches(all_rows(Saved(0, 0, 0)), FORM))) == count


def test_file_is_on_disk_before_it_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the files that are synchronized, with what is visible then.

    An .arrow output is converted only if it has several parts. Otherwise, it is synchronized if it
    replaces another one.
    """
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    path = tmp_path / "v.npz"
    synchronized: list[tuple[str, bool]] = []

    def fsync(number: int) -> None:
        name = Path(f"/proc/self/fd/{number}").resolve().name
        synchronized.append((name, path.exists()))

    monkeypatch.setattr("os.fsync", fsync)
    write_vectors(tmp_path / "moved.arrow", all_rows, FORM)
    assert not [name for name, _ in synchronized if name.endswith(".arrow")]
    write_vectors(tmp_path / "moved.arrow", all_rows, FORM, overwrite=True)
    assert [name for name, _ in synchronized if name.endswith(".arrow")] == ["000000.arrow"]

    write_vectors(path, all_rows, FORM)
    assert synchronized[-2][0].startswith(".v.npz.")  # the temporary file
    assert synchronized[-2][1] is False
    assert synchronized[-1] == (tmp_path.name, True)

    with pytest.raises(KeyboardInterrupt):
        write_vectors(tmp_path / "v.arrow", fail_at(9, KeyboardInterrupt), FORM)
    write_vectors(tmp_path / "v.arrow", all_rows, FORM, resume=True)
    assert synchronized[-2][0].startswith(".v.arrow.")


@every_format
def test_existing_file_is_replaced_only_by_a_complete_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    write_vectors(path, all_rows, FORM, settings={"layers": "top"})
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"exists already.*overwrite"):
        write_vectors(path, all_rows, FORM)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, fail_at(9, KeyboardInterrupt), FORM, overwrite=True)
    assert path.read_bytes() == before
    write_vectors(path, all_rows, FORM, resume=True, overwrite=True)
    assert path.read_bytes() != before
    assert_complete(path)


def write_without_elmore(path: Path) -> None:
    """Write a file of another program in the same format."""
    match path.suffix:
        case ".parquet":
            pq.write_table(pa.table({"score": [1.0]}), path)
        case ".arrow":
            write_arrow(path, FORM.schema, [to_batch(ROWS, FORM)])
        case ".h5":
            with h5py.File(path, "w") as file:
                file["0"] = np.zeros(3)
        case ".npz":
            np.savez(path, scores=np.zeros(3))


@every_format
@pytest.mark.parametrize("write", [write_without_elmore, lambda path: path.write_text("precious")])
def test_files_of_other_programs_are_not_replaced(
    tmp_path: Path, suffix: str, write: Callable[[Path], object]
) -> None:
    path = tmp_path / f"v{suffix}"
    write(path)
    before = path.read_bytes()
    for resume in (False, True):
        with pytest.raises(InputError, match=r"elmore did not write .*, so it is not replaced"):
            write_vectors(path, fail_at(0, AssertionError), FORM, resume=resume, overwrite=True)
        assert path.read_bytes() == before
    with pytest.raises(InputError, match="exists already"):
        write_vectors(path, fail_at(0, AssertionError), FORM, resume=True)


@pytest.mark.parametrize("interrupted", [False, True])
@every_format
def test_complete_output_is_resumed_without_work(
    tmp_path: Path, suffix: str, interrupted: bool
) -> None:
    path, settings = tmp_path / f"v{suffix}", {"layers": "top"}
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            write_vectors(path, fail_at(30, KeyboardInterrupt), FORM, settings=settings)
    write_vectors(path, all_rows, FORM, settings=settings, resume=True)
    before = path.read_bytes()
    text: list[Saved] = []

    def no_rows(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        text.append(saved)
        return iter(())

    assert write_vectors(path, no_rows, FORM, settings=settings, resume=True) == 50
    assert text == [Saved(50, 500, 50)]  # the caller checks the text of all rows
    with pytest.raises(InputError, match="has layers = 'top', not 'all'"):
        write_vectors(path, no_rows, FORM, settings={"layers": "all"}, resume=True)
    with pytest.raises(InputError, match="is complete with 50 sentences, but the text has more"):
        write_vectors(path, lambda saved: [(ROWS[0], saved)], FORM, settings=settings, resume=True)
    assert path.read_bytes() == before
    assert_complete(path)


def test_unknown_suffix_is_rejected_before_rows_are_computed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in .parquet, .arrow, .h5, .hdf5, .npz"):
        write_vectors(tmp_path / "v.csv", fail_at(0, AssertionError), FORM)
    assert FORMATS[".h5"] is FORMATS[".hdf5"]
