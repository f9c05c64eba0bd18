"""Trained tasks in installed packages: `en/ner` is the task `ner` for the biLM `en`.

A package declares an entry point in the group `elmore.tasks`. The name of the entry point is that
of the biLM; its value is a Python package whose folders are trained tasks.
"""

from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from elmore.checkpoint.locate import TASKS, package_folders
from elmore.errors import InputError

TASK = "task.json"
"""The file of a trained task that is written last."""


class InstalledTask(NamedTuple):
    """A trained task, and the distribution that provides it."""

    name: str
    """Name of the biLM, a slash, and the name of the task."""

    folder: Path
    distribution: str


def installed_tasks() -> list[InstalledTask]:
    """Return the trained tasks of all packages by name; a broken package has none."""
    return sorted(
        InstalledTask(f"{point.name}/{file.parent.name}", file.parent, point.dist.name)
        for point in entry_points(group=TASKS)
        if point.dist is not None
        for folder in package_folders(point.value)[0]
        for file in folder.glob(f"*/{TASK}")
    )


def find_task(task: Path | str) -> Path:
    """Return the folder of a trained task: `task` if it exists, else the installed one.

    Raises:
        InputError: If there is none, or if several packages provide a task of this name.
    """
    path = Path(task)
    if path.exists():
        return path
    installed = installed_tasks()
    found = [candidate for candidate in installed if candidate.name == path.as_posix()]
    if len(found) > 1:
        raise InputError(
            f"several packages provide a task {path}: "
            f"{', '.join(candidate.distribution for candidate in found)}. Uninstall all but one, "
            "or pass the path of the task"
        )
    if not found:
        names = ", ".join(dict.fromkeys(candidate.name for candidate in installed))
        raise InputError(
            f"{path}: no such task; expected a folder written by `elmore train`, or the name of an "
            f"installed task ({names or 'none is installed; en-tasks is a package with some'})"
        )
    return found[0].folder
