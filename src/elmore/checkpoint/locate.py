"""Where installed packages are. Not in `packages`, because this does not need PyTorch."""

from importlib.util import find_spec
from pathlib import Path

MODELS, TASKS = "elmore.models", "elmore.tasks"
"""Groups of the entry points of packages with models, and with trained tasks."""


def package_folders(module: str) -> tuple[list[Path], str]:
    """Return the folders of a Python package, and the reason if there are none."""
    try:
        spec = find_spec(module)  # imports only the parents of a dotted name
    except Exception as error:  # anything that the import of a parent may raise
        return [], f"importing {module} fails ({error})"
    folders = map(Path, (spec and spec.submodule_search_locations) or ())
    return list(folders), f"there is no Python package {module}"
