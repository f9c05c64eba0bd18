"""Files and folders that are written completely or not at all.

Both are written under a temporary name next to their destination and renamed at the end.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from elmore.errors import InputError


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise `InputError` if `path` exists, unless it may be overwritten or is an empty folder."""
    if not overwrite and path.exists() and not _is_empty_folder(path):
        raise InputError(
            f"{path} exists already. Choose another name, or use the overwrite option to replace "
            "it."
        )


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keep other processes from writing to `path`, which need not exist.

    Raises:
        InputError: If another process has locked it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(f".{path.name}.lock")
    try:
        with FileLock(file, timeout=0):
            try:
                yield
            finally:
                with suppress(OSError):  # Windows does not delete open files
                    file.unlink()
    except Timeout:
        raise InputError(
            f"another process is writing to {path}. Wait until it has finished, or choose another "
            "name."
        ) from None


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # on disk before the rename makes it visible
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` if the block succeeds."""
    temporary = _temporary_name(path)
    previous = temporary.with_suffix(".old")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if path.exists():
            path.replace(previous)  # rename cannot replace a folder that is not empty
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
    """Delete temporary folders that killed processes left behind.

    Call this only while no other process writes to `path`.
    """
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        shutil.rmtree(leftover)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
