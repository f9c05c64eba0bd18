"""Files and folders that are written completely or not at all, and by one process at a time.

Both are written under a temporary name next to their destination and renamed at the end.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from glob import escape
from pathlib import Path

from filelock import FileLock, Timeout

from elmore.errors import InputError

_LOCK_SECONDS = 0.2
"""Maximum time to wait for a lock: `is_locked` of another process holds it for a moment."""

_TOKEN = "[0-9a-f]" * 8
"""Pattern of the random part of a temporary name."""


def refuse_existing(
    path: Path,
    *,
    overwrite: bool,
    contents: Sequence[str] = (),
    inputs: Iterable[Path | str | None] = (),
    is_own: Callable[[Path], bool] = lambda _: True,
) -> None:
    """Raise `InputError` if writing to `path` would delete anything but an older output.

    Empty folders may always be replaced by folders.

    Args:
        path: The file or folder to write.
        overwrite: Replace an older output.
        contents: For a folder, name patterns of all files that elmore writes to it. An existing
            folder is replaced only if it contains the first of them and, besides temporary files,
            no others.
        inputs: Files and folders that are read; None is ignored.
        is_own: For a file, returns whether elmore wrote the existing one.
    """
    if not has_utf8_name(path):  # the libraries that write files could not read them again
        raise InputError(f"the name {str(path)!r} is not UTF-8. Choose another name.")
    for file in (Path(name) for name in inputs if name is not None):
        if file.exists() and file.resolve().is_relative_to(path.resolve()):
            raise InputError(f"{path} would replace the input {file}. Choose another name.")
    if not contents and path.is_dir():
        raise InputError(f"{path} is a directory; expected the name of a file")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise InputError(
            f"{path} exists already. Choose another name, or use the overwrite option to replace "
            "it."
        )
    if not contents:
        if not is_own(path):
            raise InputError(
                f"elmore did not write {path}, or it is damaged, so it is not replaced. Choose "
                "another name, or delete the file."
            )
        return
    if not (path / contents[0]).is_file():
        raise InputError(
            f"{path} has no {contents[0]}, so elmore did not write it and does not replace it. "
            "Choose another name."
        )
    for file in path.iterdir():
        if not any(fnmatch(file.name, name) for name in (*contents, _temporary_pattern("*"))):
            raise InputError(
                f"{path} contains {file.name}, which elmore did not write, so it is not replaced. "
                "Choose another name, or move that file."
            )


def has_utf8_name(path: Path) -> bool:
    """Return whether a path can be passed to libraries that expect UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keep other processes from writing to `path`, which need not exist.

    Temporary files that killed processes left next to it are deleted; see `remove_leftovers`.

    Raises:
        InputError: If another process has locked it.
    """
    path = path.resolve()
    file = path.parent / f".{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file.touch()  # `FileLock` mistakes some errors, as in /proc, for a lock
    except OSError as error:
        reason = "its parent is a file" if isinstance(error, FileExistsError) else error.strerror
        raise OSError(error.errno, f"cannot be written: {reason}", str(path)) from error
    try:
        with FileLock(file, timeout=_LOCK_SECONDS):
            try:
                remove_leftovers(path)
                yield
            finally:
                with suppress(OSError):  # Windows does not delete open files
                    file.unlink()
    except Timeout:
        raise InputError(
            f"another process is writing to {path}. Wait until it has finished, or choose another "
            "name."
        ) from None


def is_locked(path: Path) -> bool:
    """Return whether a process has locked `path`; see `lock`."""
    path = path.resolve()
    file = path.parent / f".{path.name}.lock"
    if not file.exists():  # `FileLock` would create it
        return False
    try:
        with FileLock(file, timeout=0), suppress(OSError):
            file.unlink()  # it may have been deleted and created again in the meantime
        return False
    except Timeout:
        return True


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        with naming(path, temporary):
            yield temporary
            synchronize(temporary)
            temporary.replace(path)
            synchronize(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` if the block succeeds."""
    path = path.resolve()  # of a link to a folder, replace the folder
    temporary = _temporary_name(path)
    previous = temporary.with_suffix(".old")
    temporary.mkdir(parents=True)
    try:
        with naming(path, temporary):
            yield temporary
            for file in temporary.rglob("*"):
                synchronize(file)
            synchronize(temporary)
        if path.exists():
            path.replace(previous)  # rename cannot replace a folder that is not empty
        try:
            temporary.replace(path)
        except OSError:
            if previous.exists():
                previous.replace(path)
            raise
        synchronize(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if previous.exists():
        shutil.rmtree(previous)


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Add `path` to operating-system errors that name no file, such as that of a full disk.

    In all of them, the name of `temporary` is replaced by `path`.
    """
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        if temporary is not None:
            old, new = str(temporary), str(path)
            if error.filename is not None:
                error.filename = str(error.filename).replace(old, new)
            error.args = tuple(a.replace(old, new) if isinstance(a, str) else a for a in error.args)
        raise


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder for temporary files, which is deleted at the end.

    Folders of processes that were killed are deleted, too.
    """
    parent = Path(tempfile.gettempdir())
    user = os.getuid() if hasattr(os, "getuid") else 0  # Windows has a folder per user
    for folder in parent.glob(f"elmore-{_TOKEN}"):
        # Another process may use it, or has just deleted it. `rmtree` refuses links.
        with suppress(InputError, OSError):
            if folder.lstat().st_uid == user:
                with lock(folder):
                    shutil.rmtree(folder)
    folder = parent / f"elmore-{secrets.token_hex(4)}"
    with lock(folder):  # before it exists, so that no other process deletes it
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(path: Path) -> None:
    """Delete temporary files and folders of `path` that killed processes left next to it.

    If a process was killed while it replaced `path`, the previous folder is restored. Call this
    only while no other process writes to `path`.
    """
    for previous in path.parent.glob(_temporary_pattern(escape(path.name), ".old")):
        if path.exists():
            shutil.rmtree(previous)
        else:
            previous.replace(path)
    _delete(leftovers(path))


def leftovers(path: Path) -> list[Path]:
    """Return the temporary files and folders of `path`, one per process that is writing it."""
    return [*path.parent.glob(_temporary_pattern(escape(path.name)))]


def remove_leftovers_in(folder: Path) -> None:
    """Delete temporary files that killed processes left in a folder that only elmore writes to."""
    _delete(folder.rglob(_temporary_pattern("*")))


def synchronize(path: Path) -> None:
    """Write a file, or the names in a folder, to disk."""
    if path.is_file():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        return
    with suppress(OSError):  # not on Windows, nor on all file systems
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _delete(paths: Iterable[Path]) -> None:
    for path in list(paths):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _temporary_pattern(name: str, suffix: str = ".tmp") -> str:
    return f".{name}.{_TOKEN}{suffix}"
