"""Write vectors to one file so that a killed run can be resumed.

A run appends record batches with checksums to an Arrow file, in a folder beside the output. A
resumed run continues after the last intact batch, in a second Arrow file. When all rows are there,
these parts are converted to the output; an .arrow output of an uninterrupted run is only moved.

    vectors.h5.parts/  run.json  000000.arrow  000001.arrow   ->   vectors.h5
"""

import json
import secrets
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa

from elmore.atomic import (
    atomic_file,
    lock,
    naming,
    refuse_existing,
    remove_leftovers_in,
    synchronize,
)
from elmore.errors import InputError
from elmore.progress import Progress, track
from elmore.schema import check_unchanged, read_json, write_json
from elmore.signals import deferred_signals
from elmore.vectors.formats import FORMATS, RECORD, batch_crc32
from elmore.vectors.read import read_record
from elmore.vectors.rows import VectorForm, VectorRow, to_batch

BATCH_BYTES = 2**24
"""Size of a record batch, and of a row group."""
BATCH_SECONDS = 5.0
"""A batch is also complete after this time, which is about what a killed run loses."""
QUEUE_BYTES = 2**28
"""Maximum size of the batches that wait to be written."""
_CHECKSUM_THREADS = 4  # one computes about 2 GB/s, less than a GPU produces
_RUN = "run.json"


class Saved(NamedTuple):
    """What a run has saved: a number of rows, and a checksum of their text.

    The rows after them depend on the text from row `window_start` on, but not on earlier text.
    """

    rows: int
    text_crc32: int
    window_start: int


RowsAfter = Callable[[Saved], Iterable[tuple[VectorRow, Saved]]]
"""Returns the rows that are not saved, each with what is saved once it is."""


def write_vectors(
    path: Path,
    rows_after: RowsAfter,
    form: VectorForm,
    *,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write rows to a file; return how many it has.

    Args:
        path: The suffix selects the format. The file appears when it is complete.
        rows_after: Called with what an interrupted run has saved; raises if its text differs.
        form: The shape and type of the vectors.
        settings: What the vectors depend on: a run is resumed only if they are the same.
        resume: Continue an interrupted run, if there is one. A complete output is only checked.
        overwrite: Replace a file that elmore wrote, or an interrupted run, at `path`.
        progress: Shows the conversion of the parts to the format of the file.

    Raises:
        InputError: If the arguments do not match what exists, or another process is writing.
    """
    settings = {**(settings or {}), **form._asdict()}
    with lock(path), naming(path):
        record = check_output(path, settings, resume=resume, overwrite=overwrite)
        run = _Run(path, form)
        remove_leftovers_in(run.folder)
        if "saved" in record:
            rows = _check_complete(path, rows_after, Saved(*record["saved"]))
        else:
            rows = run.compute(rows_after, record, settings, progress)
        run.remove()
        return rows


def check_output(
    path: Path, settings: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> dict[str, Any]:
    """Raise if `write_vectors` would refuse these arguments.

    Returns:
        The record of the run to resume, or of the complete output if there is nothing to resume;
        empty if a new run has to be started.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    record = (read_record(path) or {}) if resume and not overwrite else {}
    interrupted = {} if overwrite and not resume else _read_record(_folder(path))
    # An interrupted run with other settings was going to replace this complete output. It is not a
    # leftover of the run that wrote the output, so it is not removed.
    has_other_settings = bool(interrupted) and interrupted["settings"] != record.get("settings")
    if "saved" not in record or has_other_settings:
        refuse_existing(path, overwrite=overwrite, is_own=lambda file: bool(read_record(file)))
        record = interrupted
    if record and not resume:
        raise InputError(
            f"{_folder(path)} holds an interrupted run. Use the resume option to continue it, or "
            "the overwrite option to start over."
        )
    if record:
        advice = "Resume it with the same settings, or use the overwrite option to start over."
        check_unchanged(record["settings"], settings, f"the earlier run for {path} has", advice)
    return record


def _check_complete(path: Path, rows_after: RowsAfter, saved: Saved) -> int:
    """Return the number of rows of a complete output; raise unless they are all of the text."""
    if next(iter(rows_after(saved._replace(window_start=saved.rows))), None):
        raise InputError(
            f"{path} is complete with {saved.rows:,} sentences, but the text has more. Use the "
            "overwrite option to start over."
        )
    return saved.rows


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.parts")


def _read_record(folder: Path) -> dict[str, Any]:
    """Return the id and settings of a run; an empty record if there is none."""
    path = folder / _RUN
    if not path.exists():
        return {}
    record = read_json(path, "the settings of a run")
    if record.pop("crc32", None) != _record_crc32(record):
        raise InputError(
            f"{path} is damaged, or from another version of elmore. Use the overwrite option to "
            "start over."
        )
    return record


def _record_crc32(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


class _Run:
    """The folder of a run that is not complete."""

    def __init__(self, path: Path, form: VectorForm) -> None:
        self.folder = _folder(path)
        self._path = path
        self._form = form

    def compute(
        self,
        rows_after: RowsAfter,
        record: dict[str, Any],
        settings: Mapping[str, Any],
        progress: Progress | None,
    ) -> int:
        """Write the file; return its number of rows.

        Without the record of an interrupted run, start a new one.
        """
        if not record:
            self.remove()
            record = {"id": secrets.token_hex(8), "settings": settings}
            write_json(self.folder / _RUN, {**record, "crc32": _record_crc32(record)})
        saved = self._keep_intact(record["id"])
        number = 1 + int(self._parts()[-1].stem) if saved.rows else 0
        part = self.folder / f"{number:06}.arrow"
        last, suffix = saved, self._path.suffix
        schema = self._schema(settings=settings)
        try:
            with _BackgroundWriter(part, schema) as writer:
                for batch, last in _batches(rows_after(saved), self._form):
                    writer.write(batch, {"run": record["id"], "saved": json.dumps(last)})
        except BaseException:
            if next(self._intact_batches(record["id"]), None) is None:
                self.remove()
            raise
        if suffix == ".arrow" and not saved.rows:
            # A new output is not synchronized to disk, unlike converted outputs, because that took
            # almost half of the time of a run on a GPU. `read_vectors` detects what a power failure
            # damages. An earlier output is replaced only by one that is on disk.
            if self._path.exists():
                synchronize(part)
            part.replace(self._path)
            return last.rows
        parts = self._read(record["id"], last.rows)
        batches = track(parts, f"batches converted to {suffix}", progress)
        with atomic_file(self._path) as output:
            FORMATS[suffix](output, self._schema(settings=settings, saved=last), batches)
        return last.rows

    def remove(self) -> None:
        """Delete our files, and the folder unless it has others."""
        for file in (*self._parts(), self.folder / _RUN):
            file.unlink(missing_ok=True)  # the record last: until then, the run can be resumed
        with suppress(OSError):
            self.folder.rmdir()

    def _schema(self, **record: Any) -> pa.Schema:
        return self._form.schema.with_metadata({RECORD: json.dumps(record)})

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.arrow"))

    def _keep_intact(self, run: str) -> Saved:
        """Delete parts without intact batches; return what the other parts have saved."""
        saved, used = Saved(0, 0, 0), set()
        for part, _, last in self._intact_batches(run):
            saved = last
            used.add(part)
        for part in set(self._parts()) - used:
            part.unlink()
        return saved

    def _read(self, run: str, num_rows: int) -> Iterator[pa.RecordBatch]:
        for _, batch, _ in self._intact_batches(run):
            num_rows -= batch.num_rows
            yield batch
        if num_rows:
            raise OSError(
                f"{num_rows:,} rows in {self.folder} are damaged. Use the resume option to compute "
                "them again."
            )

    def _intact_batches(self, run: str) -> Iterator[tuple[Path, pa.RecordBatch, Saved]]:
        """Yield parts, batches and what is saved, up to the first batch that is not the next."""
        rows = 0
        for part in self._parts():
            with pa.OSFile(str(part)) as source:
                for batch, metadata in _complete_batches(source, self._form.schema):
                    intact = metadata.pop("crc32", "") == f"{batch_crc32(batch, metadata)}"
                    if not intact or metadata["run"] != run or batch["id"][0].as_py() != rows:
                        break
                    rows += batch.num_rows
                    yield part, batch, Saved(*json.loads(metadata["saved"]))


def _complete_batches(
    source: pa.NativeFile, schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
    """Yield the batches of an Arrow file and their metadata, up to where its writer was killed."""
    try:
        source.seek(8)  # after the magic number, a file is a stream, and that needs no footer
        stream = pa.ipc.open_stream(source)
        while stream.schema.equals(schema):
            batch, metadata = stream.read_next_batch_with_custom_metadata()
            batch.validate(full=True)  # lengths, for example, are not part of the checksum
            yield batch, {key.decode(): value.decode() for key, value in (metadata or {}).items()}
    except (StopIteration, UnicodeDecodeError, pa.ArrowException, OSError):
        return


def _batches(
    rows: Iterable[tuple[VectorRow, Saved]], form: VectorForm
) -> Iterator[tuple[pa.RecordBatch, Saved]]:
    """Collect rows to record batches, each with what is saved once it is."""
    batch: list[VectorRow] = []
    size, began = 0, time.monotonic()
    for row, saved in rows:
        batch.append(row)
        size += row.vectors.nbytes + 64 * (len(row.tokens) + 4)  # about what Python's objects take
        if size >= BATCH_BYTES or time.monotonic() - began >= BATCH_SECONDS:
            yield to_batch(batch, form), saved
            batch, size, began = [], 0, time.monotonic()
    if batch:
        yield to_batch(batch, form), saved


class _BackgroundWriter:
    """Appends record batches to an Arrow file in background threads."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema)
        self._writer_thread = ThreadPoolExecutor(1)
        self._checksum_threads = ThreadPoolExecutor(_CHECKSUM_THREADS)
        self._queue: deque[tuple[int, Future[None]]] = deque()
        self._queued_bytes = 0
        self._damaged = False

    def __enter__(self) -> "_BackgroundWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write what is queued, after an error of the caller too, and finish the file."""
        with deferred_signals():
            try:
                while self._queue:
                    self._wait()
            finally:
                for threads in (self._writer_thread, self._checksum_threads):
                    threads.shutdown()
                with self._file:
                    if not self._damaged:
                        self._writer.close()

    def write(self, batch: pa.RecordBatch, metadata: dict[str, str]) -> None:
        """Queue a batch with its checksum in the metadata; wait while the queue is full."""
        with deferred_signals():
            while self._queue and (
                self._queue[0][1].done() or self._queued_bytes + batch.nbytes > QUEUE_BYTES
            ):
                self._wait()
            crc32 = self._checksum_threads.submit(batch_crc32, batch, metadata)
            written = self._writer_thread.submit(self._append, batch, crc32, metadata)
            self._queue.append((batch.nbytes, written))
            self._queued_bytes += batch.nbytes

    def _wait(self) -> None:
        size, written = self._queue.popleft()
        self._queued_bytes -= size
        written.result()

    def _append(self, batch: pa.RecordBatch, crc32: Future[int], metadata: dict[str, str]) -> None:
        if self._damaged:
            return  # batches after a partial one cannot be read
        self._damaged = True
        self._writer.write_batch(batch, {**metadata, "crc32": f"{crc32.result()}"})
        self._damaged = False
