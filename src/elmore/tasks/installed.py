"""Find trained tasks, by path or by the name of an installed one."""

from pathlib import Path

from elmore.checkpoint.locate import installed_tasks
from elmore.errors import InputError


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
