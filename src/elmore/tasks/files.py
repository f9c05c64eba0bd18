"""The training, dev and test files of a task, and their examples."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from elmore.checksum import identify_file
from elmore.errors import InputError
from elmore.tasks.config import TaskConfig, WordsConfig
from elmore.tasks.task import Task
from elmore.tasks.trained import require_examples


class TaskFiles(NamedTuple):
    """The files of a training run."""

    train: list[Path]
    dev: Path
    tests: list[Path]

    @classmethod
    def of(
        cls,
        train: Sequence[Path | str] | Path | str,
        dev: Path | str,
        test: Sequence[Path | str] | Path | str | None,
    ) -> "TaskFiles":
        """Return the files that the arguments of `train_task` name."""
        tests = [] if test is None else _paths("test", test)
        files = cls(_paths("train", train), Path(check_path("dev", dev)), tests)
        if not files.train:
            raise InputError("train: expected at least one file")
        names = ["dev", *files.test_names()]
        if len(set(names)) < len(names):
            raise InputError(
                f"test: the scores of several files would have the same name ({', '.join(names)}); "
                "rename a file"
            )
        for path in (*files.train, files.dev, *files.tests):
            if path.exists() and not path.is_file():
                raise InputError(f"{path}: expected a regular file, because it is read twice")
        return files

    def test_names(self) -> list[str]:
        """Return the names of the test sets in the scores."""
        return ["test", *(path.name for path in self.tests[1:])][: len(self.tests)]

    def identity(self, words: WordsConfig) -> dict[str, Any]:
        """Return name, size and checksum of all files, including the word vectors."""
        return {
            "train": list(map(identify_file, self.train)),
            "dev": identify_file(self.dev),
            "test": identify_file(self.tests[0]) if self.tests else None,
            "more_tests": list(map(identify_file, self.tests[1:])),
            "vectors": identify_file(Path(words.vectors)) if words.vectors else None,
        }


def _paths(argument: str, value: Sequence[Path | str] | Path | str) -> list[Path]:
    """Return one path or several as a list."""
    several = [value] if isinstance(value, Path | str) else value
    if not isinstance(several, Iterable):
        raise TypeError(f"{argument}: expected a path or a list of paths, got {value!r:.60}")
    return [Path(check_path(argument, path)) for path in several]


def check_path(argument: str, value: Path | str) -> Path | str:
    """Raise `TypeError`, naming the argument, unless a value is a path."""
    if not isinstance(value, PathLike | str):
        raise TypeError(f"{argument}: expected a path, got {value!r:.60}")
    return value


class Examples(NamedTuple):
    """The labeled examples of a training run."""

    train: list[Any]
    dev: list[Any]
    tests: list[list[Any]]


def read_examples(task: Task[Any, Any, Any], config: TaskConfig, files: TaskFiles) -> Examples:
    """Read all files; raise `InputError` if one has no examples."""
    train = [e for path in files.train for e in task.read(path, config, training=True)]
    return Examples(
        require_examples(train, files.train),
        require_examples(task.read(files.dev, config), [files.dev]),
        [require_examples(task.read(path, config), [path]) for path in files.tests],
    )
