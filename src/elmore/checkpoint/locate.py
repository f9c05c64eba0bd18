"""Where installed packages are, and their trained tasks: `en/ner` is the task `ner` for `en`.

A package of tasks declares an entry point in the group `elmore.tasks`. The name of the entry point
is that of the biLM; its value is a Python package whose folders are trained tasks.

Not in `packages`, because this does not need PyTorch.
"""

from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

MODELS, TASKS = "elmore.models", "elmore.tasks"
"""Groups of the entry points of packages with models, and with trained tasks."""

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


def package_folders(module: str) -> tuple[list[Path], str]:
    """Return the folders of a Python package, and the reason if there are none."""
    try:
        spec = find_spec(module)  # imports only the parents of a dotted name
    except Exception as error:  # anything that the import of a parent may raise
        return [], f"importing {module} fails ({error})"
    folders = map(Path, (spec and spec.submodule_search_locations) or ())
    return list(folders), f"there is no Python package {module}"
