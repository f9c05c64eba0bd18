"""The two ways a user's request can fail that are not bugs."""

from importlib import import_module
from typing import Any


class InputError(ValueError):
    """What came, what was expected, what to type instead.

    The command line prints the message alone and exits with code 2.
    """


class MissingExtraError(ImportError):
    """A feature needs a package that the plain installation leaves out."""


def require(module: str, *, extra: str) -> Any:
    """Import an optional package, or name the extra that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this needs the package {module.split('.')[0]!r}, which is not installed. "
            f'Install it with: pip install "elmore[{extra}]"'
        ) from error
