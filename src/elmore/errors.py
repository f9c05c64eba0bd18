"""Errors that users can fix, such as invalid input and missing packages; warnings for users."""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Invalid input. The message says what is wrong, what is accepted and what to do.

    The command line prints the message without a traceback and exits with code 2.
    """


class MissingExtraError(ImportError):
    """A feature needs an optional package that is not installed."""


@contextmanager
def as_input_error(message: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise `InputError` with the message and the reason instead of these errors."""
    try:
        yield
    except InputError:
        raise
    except errors as error:
        raise InputError(f"{message} ({' '.join(str(error).split())})") from error


def describe_os_error(error: OSError) -> str:
    """Return the file and what is wrong with it, such as `x.txt: No such file or directory`."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


_OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory ran out.

    PyTorch raises `RuntimeError` on a CPU, and a subclass of it on a GPU.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None
    )


def require(module: str, *, extra: str) -> Any:
    """Import an optional package.

    Raises:
        MissingExtraError: If it is not installed; the message says how to install the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this needs the package {module.split('.')[0]!r}, which is not installed. "
            f'Install it with: pip install "elmore[{extra}]"'
        ) from error


_LIBRARIES = {"elmore", "sentence_transformers", "sklearn", "spacy", "torch", "transformers"}
"""Packages that are not the user's code: elmore, and those that call it."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Show a warning with the line of the user's code that led to it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
