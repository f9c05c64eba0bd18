"""Write vectors to one file so that a killed run can be resumed.

Rows are appended to an Arrow file in a folder beside the output. Up to its last complete record
batch, such a file can be read even if its writer was killed, so a resumed run starts after that
batch, in a second Arrow file. When all rows are there, these parts are converted to the output; an
.arrow output of an uninterrupted run only has to be moved.

    vectors.h5.parts/  run.json  000000.arrow  000001.arrow   ->   vectors.h5
"""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from elmore.atomic import refuse_existing
from elmore.errors import InputError
from elmore.vectors.formats import FORMATS
from elmore.vectors.rows import VectorForm, VectorRow, to_batch

BATCH_BYTES = 2**24
"""Size of a record batch, and of a row group."""
BATCH_SECONDS = 5.0
"""A batch is also complete after this time, which is about what a killed run loses."""
QUEUE_BYTES = 2**28
"""Batches that wait for the disk."""

RowsFrom = Callable[[int], Iterable[VectorRow]]
"""Returns all rows except the given number of first ones."""
Progress = Callable[[Iterable[Any], str], Iterable[Any]]
"""Wraps an iterable to show how far it is, like `tqdm.tqdm` or `rich.progress.track`."""


def write_vectors(
    path: Path,
    rows_from: RowsFrom,
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
        rows_from: Called with the number of rows that an interrupted run has saved.
        form: The shape and type of the vectors.
        settings: What the vectors depend on: a run is resumed only if they are the same.
        resume: Continue an interrupted run, if there is one.
        overwrite: Replace a file, or an interrupted run, at `path`.
        progress: Shows the conversion of the parts to the format of the file.
    """
    settings = {**(settings or {}), **form._asdict()}
    check_output(path, settings, resume=resume, overwrite=overwrite)
    parts = _Parts(path, form)
    saved = parts.open(settings, resume=resume)
    try:
        count = saved + parts.append(rows_from(saved))
    except BaseException:
        parts.remove_if_empty()
        raise
    if saved == 0 and path.suffix == ".arrow":
        parts.publish(parts.files()[0])
    else:
        parts.convert(count, progress)
    return count


def check_output(path: Path, settings: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
    """Raise if `write_vectors` would refuse these arguments."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    refuse_existing(path, overwrite=overwrite)
    folder = _folder(path)
    before = _read_settings(folder)
    if before is None or (overwrite and not resume):
        return
    if not resume:
        raise InputError(
            f"{folder} holds an interrupted run. Use the resume option to continue it, or the "
            "overwrite option to start over."
        )
    for name, value in settings.items():
        if before.get(name) != value:
            raise InputError(
                f"the interrupted run in {folder} has {name} = {before.get(name)!r}, not "
                f"{value!r}. Resume it with the same settings, or use the overwrite option "
                "to start over."
            )


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.parts")


def _read_settings(folder: Path) -> dict[str, Any] | None:
    """Return the settings of an interrupted run, or None if there is nothing to resume."""
    try:
        return json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None  # written before any part, and removed before them


class _Parts:
    """The folder of a run that is not complete."""

    def __init__(self, path: Path, form: VectorForm) -> None:
        self._path = path
        self._form = form
        self._folder = _folder(path)

    def open(self, settings: Mapping[str, Any], *, resume: bool) -> int:
        """Return the number of rows saved by an interrupted run, or make a new folder."""
        if resume and _read_settings(self._folder) is not None:
            return self._drop_damaged()
        self._remove()
        self._folder.mkdir(parents=True, exist_ok=True)
        record = json.dumps(settings, indent=2)
        (self._folder / "run.json").write_text(record, encoding="utf-8")
        return 0

    def files(self) -> list[Path]:
        """Return the parts, in order."""
        return sorted(self._folder.glob("[0-9]*.arrow"))

    def append(self, rows: Iterable[VectorRow]) -> int:
        """Write rows to a new part; return their number."""
        count = 0
        path = self._folder / f"{len(self.files()):06}.arrow"
        with _BackgroundWriter(path, self._form.schema) as writer:
            for batch in _batches(rows, self._form):
                writer.write(batch)
                count += batch.num_rows
        return count

    def convert(self, num_rows: int, progress: Progress | None) -> None:
        """Write the output from the parts."""
        suffix = self._path.suffix
        temporary = self._folder / f"output{suffix}"
        batches: Iterable[pa.RecordBatch] = self._read(num_rows)
        if progress is not None:
            batches = progress(batches, f"batches converted to {suffix}")
        try:
            FORMATS[suffix](temporary, self._form.schema, batches)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.publish(temporary)

    def publish(self, complete: Path) -> None:
        """Move a complete file to its final place and remove the folder."""
        if self._path.exists():
            with complete.open("rb+") as file:  # a power failure must not cost us both files
                os.fsync(file.fileno())
        complete.replace(self._path)
        self._remove()

    def remove_if_empty(self) -> None:
        """Remove the folder if no row is saved."""
        if self._drop_damaged() == 0:
            self._remove()

    def _drop_damaged(self) -> int:
        """Delete parts that do not continue the part before them; return the number of rows."""
        count = 0
        for file in self.files():
            with pa.memory_map(str(file)) as source:
                batches = list(_complete_batches(source))
            if batches and batches[0]["id"][0].as_py() == count:
                count += sum(batch.num_rows for batch in batches)
            else:
                file.unlink()
        return count

    def _read(self, num_rows: int) -> Iterator[pa.RecordBatch]:
        for file in self.files():
            with pa.OSFile(str(file)) as source:
                for batch in _complete_batches(source):
                    num_rows -= batch.num_rows
                    yield batch
        if num_rows:
            raise OSError(f"{num_rows} rows in {self._folder} can't be read any longer")

    def _remove(self) -> None:
        """Delete our files, and the folder unless it has others."""
        (self._folder / "run.json").unlink(missing_ok=True)  # first: no other file counts without
        for file in [*self.files(), *self._folder.glob("output.*")]:
            file.unlink()
        with suppress(OSError):
            self._folder.rmdir()


def _complete_batches(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file up to its end, or to where its writer was killed."""
    try:
        source.seek(8)  # after the magic number, a file is a stream, and that needs no footer
        stream = pa.ipc.open_stream(source)
        while True:
            yield stream.read_next_batch()
    except (StopIteration, pa.ArrowInvalid, OSError):
        return


def _batches(rows: Iterable[VectorRow], form: VectorForm) -> Iterator[pa.RecordBatch]:
    """Collect rows to record batches."""
    batch: list[VectorRow] = []
    size, began = 0, time.monotonic()
    for row in rows:
        batch.append(row)
        size += row.vectors.nbytes + 64 * (len(row.tokens) + 4)  # about what Python's objects take
        if size >= BATCH_BYTES or time.monotonic() - began >= BATCH_SECONDS:
            yield to_batch(batch, form)
            batch, size, began = [], 0, time.monotonic()
    if batch:
        yield to_batch(batch, form)


class _BackgroundWriter:
    """Appends record batches to an Arrow file in a thread, while more are computed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema)
        self._thread = ThreadPoolExecutor(1)
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
        try:
            while self._queue:
                self._wait()
        finally:
            self._thread.shutdown()
            if not self._damaged:
                self._writer.close()
            self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch to the queue; wait while the queue is full."""
        while self._queue and (
            self._queue[0][1].done() or self._queued_bytes + batch.nbytes > QUEUE_BYTES
        ):
            self._wait()
        self._queue.append((batch.nbytes, self._thread.submit(self._append, batch)))
        self._queued_bytes += batch.nbytes

    def _wait(self) -> None:
        size, written = self._queue.popleft()
        self._queued_bytes -= size
        written.result()

    def _append(self, batch: pa.RecordBatch) -> None:
        if self._damaged:
            return  # behind half a batch nothing can be read
        self._damaged = True
        self._writer.write_batch(batch)
        self._damaged = False
