"""The folder of a training run: checked, created, resumed, completed.

DIR/config.toml     the settings of the run, with all defaults filled in
DIR/metrics.jsonl   one JSON object per line, appended while training
DIR/checkpoints/    what an interrupted run resumes from; removed on completion
"""

import json
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import torch

from elmore.atomic import atomic_folder, naming, refuse_existing, remove_leftovers_in, write_text
from elmore.errors import InputError
from elmore.schema import write_json
from elmore.signals import InterruptedRunError
from elmore.training.checkpoints import (
    Checkpoint,
    EarlierVersionError,
    checkpoint_files,
    read_checkpoint,
)
from elmore.training.settings import list_changes, write_settings

Report = Callable[[dict[str, Any]], None]
"""Receives each line of metrics.jsonl, and `{"note": ...}` for messages to the user."""


NO_CHECKPOINT = "no checkpoint can be used"
"""Start of the error message of a run that cannot be resumed."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    Args:
        path: The folder, which need not exist yet.
        last_file: The file that the run writes last. The run is complete once it exists.
        results: Patterns of the names of all other results. A folder with other files is not
            overwritten.
    """

    path: Path
    last_file: str
    results: tuple[str, ...] = ("*",)

    @property
    def settings(self) -> Path:
        """The file with the settings of the run."""
        return self.path / "config.toml"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def complete(self) -> bool:
        """Whether the run has finished."""
        return (self.path / self.last_file).exists()

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def _previous(self) -> Path:
        path = self.path.resolve()  # follows a link to its target
        return path.with_name(f".{path.name}.previous")

    def check(
        self, *, resume: bool, overwrite: bool, inputs: Iterable[Path | str | None] = ()
    ) -> None:
        """Raise `InputError` unless a run can be started here, or resumed with `resume`.

        A run that a killed process had moved aside is restored.

        Args:
            resume: Resume an interrupted run.
            overwrite: Replace an earlier run.
            inputs: Files and folders that the run reads and must not replace; None is ignored.
        """
        if not self.path.exists() and self._previous.exists():
            # A process was killed between moving the old run aside and creating the new one.
            self._previous.replace(self.path.resolve())
        if resume:
            if self.complete:
                self.finish()  # it may have been killed before that
                raise InputError(f"the run in {self.path} is complete; there is nothing to resume")
            if not self.settings.exists():
                raise InputError(f"there is no run to resume in {self.path}; start a new one")
            remove_leftovers_in(self.path)
            return
        if Path.cwd().is_relative_to(self.path.resolve()):
            raise InputError(
                f"a new run would replace {self.path.resolve()}, which is or contains the working "
                "directory; choose another folder"
            )
        own = (self.settings.name, self._metrics.name, self.checkpoints.name, self.last_file)
        contents = (*own, *self.results)
        refuse_existing(self.path, overwrite=overwrite, contents=contents, inputs=inputs)

    def create(self, settings: Any, files: Mapping[str, Any] | None = None) -> None:
        """Create the folder of a new run with its settings.

        A complete run in its place is moved aside, and deleted by `finish` of the new run. An
        incomplete one is deleted right away.

        Args:
            settings: The settings of the run.
            files: Names and contents of JSON files that resuming needs, too.
        """
        with atomic_folder(self.path) as temporary:  # incomplete, it could not be resumed
            write_settings(settings, temporary / self.settings.name)
            for name, content in (files or {}).items():
                write_json(temporary / name, content)
            if self.complete:
                shutil.rmtree(self._previous, ignore_errors=True)
                self.path.resolve().replace(self._previous)

    @contextmanager
    def explain_interruption(self, *, resume: bool) -> Iterator[None]:
        """Turn a `KeyboardInterrupt` into an `InterruptedRunError` that says what was saved.

        Args:
            resume: Whether the run is resumed, so that the folder is from before.
        """
        before = None if resume else self._created
        try:
            yield
        except KeyboardInterrupt as error:
            if self._created == before:
                saved = "before training, so nothing was saved; run the same command again"
            elif checkpoint_files(self.checkpoints):
                saved = "between checkpoints; resume the run to continue from the last one"
            else:
                saved = "before the first checkpoint; resume the run to start from the beginning"
            raise InterruptedRunError(f"interrupted {saved}") from error

    @property
    def _created(self) -> int | None:
        """When the run was created, if it was."""
        return self.settings.stat().st_mtime_ns if self.settings.exists() else None

    def require_settings(self, saved: Any, current: Any) -> None:
        """Raise `InputError` if a run is resumed with other settings than it was started with."""
        if changes := list_changes(saved, current):
            raise InputError(
                f"the run in {self.path} was started with other settings: {', '.join(changes)}. "
                f"Resume it with those in {self.settings.name}."
            )

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with naming(self._metrics), self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def read_metrics(self, counter: str) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, each of which has an integer named `counter`."""
        raw = self._metrics.read_bytes() if self._metrics.exists() else b""
        records = []
        # A line without an end was cut off when the process was killed.
        for number, line in enumerate(raw.splitlines(keepends=True), start=1):
            if line.endswith(b"\n"):
                try:
                    record = json.loads(line)
                    index(record[counter])
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    raise InputError(
                        f"{self._metrics}, line {number} is damaged: expected a JSON object with "
                        f"{counter!r}. Delete the line."
                    ) from error
                records.append(record)
        return records

    def drop_metrics_after(self, counter: str, last: int) -> list[dict[str, Any]]:
        """Drop the lines whose `counter` is above `last`: a resumed run writes them again.

        Returns:
            The other lines.
        """
        records = [r for r in self.read_metrics(counter) if r[counter] <= last]
        write_text(self._metrics, "".join(f"{json.dumps(r)}\n" for r in records))
        return records

    def newest_checkpoint(self, report: Report) -> tuple[Path, Checkpoint] | None:
        """Return the newest intact checkpoint and its file; None if the run has not written any.

        Damaged checkpoints are reported and renamed to `*.damaged`.

        Raises:
            InputError: If all checkpoints are damaged, or an earlier version of elmore has
                written them.
        """
        errors = []
        for path in reversed(checkpoint_files(self.checkpoints)):
            try:
                return path, read_checkpoint(path)
            except EarlierVersionError:
                raise
            except InputError as error:
                errors.append(str(error))
                report({"note": f"{error}; trying the previous checkpoint"})
                with suppress(FileNotFoundError):  # another process was first
                    path.rename(path.with_suffix(".damaged"))
        damaged = [f"{path} is damaged" for path in self.checkpoints.glob("*.damaged")]
        if errors or damaged:
            raise InputError(f"{NO_CHECKPOINT}: {[*errors, *damaged][0]}. Start the run again.")
        return None

    def finish(self, *, keep_checkpoints: bool = False) -> None:
        """Delete what a complete run no longer needs: checkpoints, and the run it replaces."""
        if not keep_checkpoints:
            shutil.rmtree(self.checkpoints, ignore_errors=True)
        shutil.rmtree(self._previous, ignore_errors=True)


def hardware_name(device: torch.device) -> str:
    """Return the name of a GPU, or the architecture of the CPU and its number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'s' * (threads > 1)}"
