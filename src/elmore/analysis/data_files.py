"""Files of a dataset: found by name, compressed or not, and identified by their checksums."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from elmore.analysis.results import NotAvailableError
from elmore.errors import InputError

_SUFFIXES = ("", ".gz", ".xz", ".tar", ".tar.gz", ".tar.xz")


def find_file(folder: Path, pattern: str) -> Path:
    """Return the only file or folder that matches a pattern, compressed or not.

    Raises:
        NotAvailableError: If there is none.
        InputError: If there are several.
    """
    paths = sorted({path for suffix in _SUFFIXES for path in folder.glob(pattern + suffix)})
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise InputError(f"{folder} has {len(paths)} files for {pattern} ({names}); expected one")
    if not paths:
        raise NotAvailableError(f"{folder / pattern if folder.exists() else folder} not found")
    return paths[0]


def find_files(folder: Path, files: Sequence[str | Path]) -> list[Path]:
    """Return the file of each pattern, see `find_file`; paths are returned as they are."""
    return [file if isinstance(file, Path) else find_file(folder, file) for file in files]


def checksums(paths: Sequence[Path], folder: Path) -> dict[str, str]:
    """Return the SHA-256 of files, and of all files in folders, by their path below `folder`.

    Files elsewhere are identified by their name.
    """
    folder = _absolute(folder)
    files = [
        file
        for path in map(_absolute, paths)
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file()
    ]
    return {
        file.relative_to(folder).as_posix() if folder in file.parents else file.name: _sha256(file)
        for file in files
    }


def _absolute(path: Path) -> Path:
    """Return the absolute path without `..`. Unlike `Path.resolve`, do not follow links."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
