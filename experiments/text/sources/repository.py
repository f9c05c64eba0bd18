"""Files of a git directory, without a work tree. Files that it lacks are skipped."""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import NamedTuple


class File(NamedTuple):
    """A file of a repository: the id of its content, and its path."""

    blob: str
    path: str


def list_files(git: Path, folder: str = "", *, suffix: str = "") -> list[File]:
    """Return the files below a folder, in the order of git's listing."""
    command = ["-c", "core.quotepath=off", "ls-tree", "-r", "-z", "HEAD", *filter(None, [folder])]
    entries = _run(git, *command).decode("utf-8", "replace").split("\0")
    files = [File(entry.split(maxsplit=3)[2], entry.partition("\t")[2]) for entry in entries[:-1]]
    return [file for file in files if file.path.endswith(suffix)]


def list_history(git: Path, *, suffix: str) -> list[File]:
    """Return all versions of the files that end in `suffix`, over the whole history."""
    objects = _run(git, "rev-list", "--objects", "--all", "--missing=allow-any").decode()
    entries = (line.partition(" ") for line in objects.splitlines())
    return [File(blob, path) for blob, _, path in entries if path.endswith(suffix)]


def read_files(git: Path, files: Iterable[File]) -> Iterator[bytes]:
    """Yield the content of files."""
    files = list(files)
    with subprocess.Popen(
        ["git", f"--git-dir={git}", "cat-file", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        requests, answers = process.stdin, process.stdout
        assert requests
        assert answers

        def request() -> None:
            with requests:
                requests.writelines(f"{file.blob}\n".encode() for file in files)

        Thread(target=request, daemon=True).start()
        for _ in files:
            header = answers.readline().split()
            if len(header) == 3:  # blob, type, size; otherwise git says that it is missing
                yield answers.read(int(header[2]))
                answers.read(1)


def read_texts(git: Path, files: Iterable[File]) -> Iterator[str]:
    """Yield the content of files, which is UTF-8 or Windows-1252."""
    for content in read_files(git, files):
        try:
            yield content.decode()
        except UnicodeDecodeError:
            yield content.decode("cp1252", "replace")


def _run(git: Path, *arguments: str) -> bytes:
    command = ["git", f"--git-dir={git}", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
