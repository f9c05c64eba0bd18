"""Error handling of the commands in `elmore.compat`."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from elmore.errors import InputError, describe_os_error


@contextmanager
def exit_on_error(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Print a one-line error and exit with code 2 if the input is invalid."""
    try:
        yield
    except InputError as error:
        parser.exit(2, f"elmore: {error}\n")
    except OSError as error:
        parser.exit(2, f"elmore: {describe_os_error(error)}\n")
    except KeyboardInterrupt:
        parser.exit(130, "elmore: interrupted\n")
