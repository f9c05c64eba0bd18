"""Files that are either complete or not there.

What is being written has a temporary name in the same folder, and moves into place at the end.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmore.errors import InputError


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise if something is at `path` that nobody has agreed to lose."""
    if not overwrite and path.exists() and not _is_empty_folder(path):
        raise InputError(
            f"{path} exists already. Choose another name, or use the overwrite option to replace "
            "it."
        )


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name for a file that appears at `path` only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # on the disk before it has its name
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that appears at `path` only if the block succeeds."""
    temporary = _temporary_name(path)
    previous = temporary.with_suffix(".old")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if path.exists():
            path.replace(previous)  # a folder can't be replaced in one move
        try:
            temporary.replace(path)
        except OSError:
            if previous.exists():
                previous.replace(path)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if previous.is_dir():
        shutil.rmtree(previous)
    else:
        previous.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove what a killed `atomic_folder` has left. Nobody else may be writing to `path`."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        shutil.rmtree(leftover)


def make_way(folder: Path, marker: str) -> None:
    """Clear the place of a folder that takes long to make.

    If what is there is complete, as the file `marker` in it tells, it is kept beside it, under a
    name of our own, until `drop_previous` says that the new one is complete too.
    """
    previous = _previous(folder)
    if (folder / marker).exists() and not previous.exists():
        folder.replace(previous)
    elif folder.exists():
        shutil.rmtree(folder)


def drop_previous(folder: Path) -> None:
    """Remove what had to make way for a folder that is complete now."""
    shutil.rmtree(_previous(folder), ignore_errors=True)


def _previous(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.previous")


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
