"""The command line: one module per command, without logic of its own.

Commands import torch and other slow packages when they run, so that `elmore --help` is fast.
"""

import io
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError

import elmore
from elmore.cli.convert import convert
from elmore.cli.embed import embed
from elmore.cli.evaluate import evaluate
from elmore.cli.export import onnx, projector, tasks
from elmore.cli.finetune import finetune
from elmore.cli.index import index
from elmore.cli.info import info
from elmore.cli.neighbors import neighbors
from elmore.cli.perplexity import perplexity
from elmore.cli.predict import predict
from elmore.cli.pretrain import pretrain
from elmore.cli.reproduce import reproduce
from elmore.cli.serve import serve
from elmore.cli.train import train
from elmore.errors import InputError, MissingExtraError, describe_os_error, is_out_of_memory
from elmore.signals import InterruptedRunError, handled_signals
from elmore.threads import limit_spinning


def _describe_default(default: object) -> str | None:
    """Return a default for the help text; None for unset flags and empty lists."""
    return None if default is None or default is False or default == () else str(default)


app = App(
    name="elmore",
    default_parameter=Parameter(show_default=_describe_default, negative=""),  # no --no-FLAG
    suppress_keyboard_interrupt=False,
    version=elmore.__version__,
    help="ELMo for PyTorch: contextual word vectors.",
    help_epilogue="Run `elmore COMMAND --help` for options and examples.",
)
_ARGUMENTS: dict[Callable[..., None], str] = {
    embed: "--output PATH [OPTIONS] TEXT [MORE...]",
    neighbors: "(--corpus PATH | --index PATH) [OPTIONS] QUERY",
    index: "--output PATH [OPTIONS] TEXT",
    pretrain: "--output PATH [OPTIONS] FILES...",
    finetune: "--output PATH [OPTIONS] MODEL FILES...",
    perplexity: "[OPTIONS] MODEL FILES...",
    train: "--train PATH... --dev PATH --output PATH [OPTIONS] TASK",
    evaluate: "[OPTIONS] RUN FILE",
    predict: "[OPTIONS] RUN [FILE | TEXT]",
    reproduce: "--data PATH --output PATH [OPTIONS]",
    serve: "[OPTIONS]",
    convert: "--output PATH [OPTIONS] MODEL [OPTIONS.JSON]",
    info: "[OPTIONS] [MODEL] [OPTIONS.JSON]",
}
_EXPORT_ARGUMENTS: dict[Callable[..., None], str] = {
    onnx: "--output PATH [OPTIONS] [MODEL] [OPTIONS.JSON]",
    projector: "--output PATH [OPTIONS] TEXT",
    tasks: "--output PATH --license-file PATH [OPTIONS] RUNS...",
}
exports = App(
    name="export",
    help="Write models and vectors for other programs, and trained tasks as a package.",
    help_epilogue="Run `elmore export COMMAND --help` for options and examples.",
)
for group, name, commands in (
    (app, "elmore", _ARGUMENTS),
    (exports, "elmore export", _EXPORT_ARGUMENTS),
):
    for command, arguments in commands.items():
        usage = f"Usage: {name} {command.__name__} {arguments}"
        group.command(command, usage=usage, help_epilogue="")
app.command(exports)


def main() -> None:
    """Run a command. Invalid input prints a one-line error and exits with code 2."""
    _write_utf8()
    warnings.showwarning = _show_warning
    limit_spinning()
    try:
        with handled_signals(_terminate):
            app(sys.argv[1:], print_error=False, exit_on_error=False)
    except CycloptsError as error:
        _fail(_describe_usage_error(error))
    except InterruptedRunError as error:
        print(f"elmore: {error}", file=sys.stderr)
        sys.exit(130)
    except KeyboardInterrupt:
        print("elmore: interrupted", file=sys.stderr)
        sys.exit(130)  # the shells' convention for Ctrl-C: 128 + SIGINT
    except (InputError, MissingExtraError) as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.exit(0)  # the output was piped to a program such as `head`, which closed the pipe
    except OSError as error:
        # A missing file or a full disk, for example: not a bug, so no traceback.
        _fail(describe_os_error(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail(f"not enough memory; try a smaller model or smaller batches ({error!s:.200})")


def _describe_usage_error(error: CycloptsError) -> str:
    """Return one line; with the usage of the command if arguments are missing or too many."""
    command = app
    for name in error.command_chain or ():
        command = command[name]
    usage = str(command.usage)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}. {usage}"
    if not isinstance(error, MissingArgumentError) or error.keyword or error.argument is None:
        return " ".join(str(error).split())
    option = error.argument.name
    missing = option if option in usage else option.removeprefix("--").upper()
    return f"{missing} is missing. {usage}"


def _write_utf8() -> None:
    """Write UTF-8 to files and pipes. On a terminal, escape characters outside its encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"elmore: {message}", file=sys.stderr)


def _fail(message: str) -> NoReturn:
    print(f"elmore: {message}", file=sys.stderr)
    sys.exit(2)


def _terminate(*_: object) -> NoReturn:
    """Handle all signals like Ctrl-C, so that `finally` blocks run and finished work is saved."""
    raise KeyboardInterrupt
