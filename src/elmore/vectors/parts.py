"""A long run to one file, in parts, so that a killed run can go on where it was.

Parts are complete once they have their name; each begins with the row after the last one's end.
They have the format of the whole, so a run that is done in one part only moves it.

    vectors.h5.parts/  run.json  000000.h5  000001.h5   ->   vectors.h5
"""

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from elmore.atomic import atomic_file, refuse_existing
from elmore.errors import InputError
from elmore.vectors.formats import Writer, writer_for
from elmore.vectors.rows import VectorForm, VectorRow

SECONDS_PER_PART = 30.0
_GROUP_SIZE = 4096  # words, plus one a sentence
_GROUPS_WAITING = 16  # to be written, while more are computed

RowsFrom = Callable[[int], Iterator[VectorRow]]
"""All rows but the first so many, which earlier parts hold."""


def write_vectors(
    path: Path,
    rows_from: RowsFrom,
    form: VectorForm,
    *,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    seconds_per_part: float = SECONDS_PER_PART,
) -> int:
    """Write rows to a Parquet, HDF5 or npz file; return their number.

    Args:
        path: The suffix decides the format. The file appears there when it is complete.
        rows_from: Called with the number of rows that an interrupted run has written.
        form: The shape and type of the vectors.
        settings: What the vectors depend on; a run goes on only with the settings it began with.
        resume: Go on with an interrupted run, if there is one.
        overwrite: Replace what is there, finished or not.
        seconds_per_part: At most about so much work is lost when the process is killed.
    """
    writer_for(path)  # a wrong suffix should fail before the work, not after it
    refuse_existing(path, overwrite=overwrite)
    parts = _Parts(path, {**(settings or {}), **form._asdict()})
    parts.open(resume=resume, overwrite=overwrite)
    try:
        rows = rows_from(parts.num_rows())
        while parts.write_one(rows, form, seconds_per_part):
            pass
    except BaseException:
        if not parts.files():  # nothing to go on with
            parts.remove()
        raise
    count = parts.num_rows()
    parts.join(path, form)
    parts.remove()
    return count


class _Parts:
    """The folder of a run that is not complete."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._format = writer_for(path)
        self._suffix = path.suffix
        self._folder = path.with_name(f"{path.name}.parts")
        self._record = self._folder / "run.json"
        self._settings = dict(settings)

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Make the folder, or take over the one that an interrupted run has left."""
        if self._folder.exists():
            if resume:
                self._check_settings()
                self._drop_damaged()
                return
            if not overwrite:
                raise InputError(
                    f"{self._folder} holds an interrupted run. Pass --resume to go on with it, "
                    "or --overwrite to start again."
                )
            self.remove()
        self._folder.mkdir(parents=True)
        self._record.write_text(json.dumps(self._settings, indent=2), encoding="utf-8")

    def _check_settings(self) -> None:
        try:
            before = json.loads(self._record.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            before = {}
        for name in before.keys() | self._settings.keys():
            old, new = before.get(name), self._settings.get(name)
            if old != new:
                raise InputError(
                    f"the interrupted run in {self._folder} had {name} = {old!r}, this one has "
                    f"{new!r}. Use the same settings, or --overwrite to start again."
                )

    def _drop_damaged(self) -> None:
        """Remove a part that can't be read, and those after it: they are written again."""
        sound = True
        for file in self.files():
            try:
                self._format.count(file)
            except OSError:
                sound = False
            if not sound:
                file.unlink()

    def files(self) -> list[Path]:
        """Return the complete parts, in order."""
        return sorted(self._folder.glob(f"[0-9]*{self._suffix}"))

    def num_rows(self) -> int:
        """Count the rows that are safe."""
        return sum(self._format.count(file) for file in self.files())

    def write_one(self, rows: Iterator[VectorRow], form: VectorForm, seconds: float) -> bool:
        """Write rows for some seconds, or to their end; return whether there were any."""
        path = self._folder / f"{len(self.files()):06}{self._suffix}"
        temporary = path.with_suffix(".tmp")
        deadline = time.monotonic() + seconds
        groups = _groups(rows)
        writer = None
        try:
            for group in groups:
                writer = writer or _Behind(self._format(temporary, form))
                writer.write(group)
                if time.monotonic() >= deadline:
                    break
        finally:
            # Also on an interruption: what has been written until then is complete.
            if writer is not None:
                self._keep(writer, temporary, path)
        return writer is not None

    def _keep(self, writer: "_Behind", temporary: Path, path: Path) -> None:
        try:
            writer.close()
        except OSError:  # a disk that is full: what is in the file can't be trusted
            temporary.unlink(missing_ok=True)
            raise
        temporary.replace(path)

    def join(self, path: Path, form: VectorForm) -> None:
        """Make one file of the parts."""
        files = self.files()
        if len(files) == 1:
            files[0].replace(path)
            return
        with atomic_file(path) as temporary:
            writer = self._format(temporary, form)
            try:
                for file in files:
                    writer.append(file)
            finally:
                writer.close()

    def remove(self) -> None:
        """Forget the run."""
        shutil.rmtree(self._folder)


def _groups(rows: Iterator[VectorRow]) -> Iterator[list[VectorRow]]:
    """Collect rows until they have enough words to be worth a row group of their own."""
    group: list[VectorRow] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row.tokens) + 1
        if size >= _GROUP_SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


class _Behind:
    """A writer that works in a thread of its own, so that nobody waits for the disk."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def write(self, group: list[VectorRow]) -> None:
        """Add some rows, sooner or later."""
        self._waiting.append(self._thread.submit(self._writer.write, group))
        if len(self._waiting) > _GROUPS_WAITING:
            self._waiting[0].result()  # an error stays there, for `close` to meet it too
            self._waiting.popleft()

    def close(self) -> None:
        """Write what is waiting and finish the file."""
        try:
            for done in self._waiting:
                done.result()
        finally:
            self._thread.shutdown()
            self._writer.close()
