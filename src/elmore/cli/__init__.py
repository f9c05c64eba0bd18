"""The command line: one thin file per command.

A command imports what it needs, torch above all, when it is called: `elmore --help` is instant.
"""

import signal
import sys
from typing import NoReturn

from cyclopts import App

import elmore
from elmore.cli.convert import convert
from elmore.cli.embed import embed
from elmore.cli.evaluate import evaluate
from elmore.cli.finetune import finetune
from elmore.cli.info import info
from elmore.cli.neighbors import neighbors
from elmore.cli.perplexity import perplexity
from elmore.cli.predict import predict
from elmore.cli.pretrain import pretrain
from elmore.cli.train import train
from elmore.errors import InputError, MissingExtraError
from elmore.threads import limit_spinning
from elmore.training.interruption import InterruptedRunError

app = App(
    name="elmore",
    suppress_keyboard_interrupt=False,
    version=elmore.__version__,
    help="ELMo for today's Python: word vectors that depend on their sentence.",
    help_epilogue="`elmore COMMAND --help` has examples and options.",
)
for command in (
    embed, neighbors, pretrain, finetune, perplexity, train, evaluate, predict, convert, info,
):  # fmt: skip
    app.command(command)


def main() -> None:
    """Run a command; wrong input ends with one message and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    limit_spinning()
    try:
        app(sys.argv[1:])
    except InterruptedRunError as error:
        print(f"elmore: {error}", file=sys.stderr)
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)  # what shells call an end by Ctrl-C
    except (InputError, MissingExtraError) as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.exit(0)  # the reader, `head` perhaps, has seen enough
    except OSError as error:
        # A file that is missing, a disk that is full: the user's world, not a bug.
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")


def _fail(message: str) -> NoReturn:
    print(f"elmore: {message}", file=sys.stderr)
    sys.exit(2)


def _terminate(*_: object) -> NoReturn:
    """End through the `finally` blocks, as Ctrl-C does, so that work in progress is kept."""
    raise KeyboardInterrupt
