"""`elmore predict`: predictions of a trained task."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import (
    Json,
    OwnTask,
    ReplaceInvalid,
    TaskPrecision,
    TrainedBiLM,
    reject_options,
)
from elmore.errors import InputError

_LABELED = {".conll", ".conllu", ".json", ".jsonl"}
"""Suffixes of files that are hardly ever text with one example per line."""
_FILE_SUFFIXES = _LABELED | {".txt", ".tsv", ".csv", ".gz", ".xz", ".bz2", ".zst"}
"""An argument that ends in one of these is the name of a file, not a text."""


def predict(
    run: Path,
    file: Annotated[str, Parameter(allow_leading_hyphen=True, validator=reject_options)] = "-",
    *,
    file_format: Annotated[Literal["text", "task"], Parameter(name="--format")] = "text",
    tokenizer: Literal["moses", "whitespace", "spacy"] | None = None,
    language: str | None = None,
    replace_invalid: ReplaceInvalid = False,
    task: OwnTask = None,
    model: TrainedBiLM = None,
    device: str = "auto",
    precision: TaskPrecision = None,
    json_output: Json = False,
) -> None:
    """Run a trained task on text, line by line.

    Output is formatted on a terminal, and one line of JSON per line of text in a pipe. A blank or
    invalid line gives an object with the key `error`. If no line is valid, the exit code is 2.

    Examples: `elmore predict runs/ner < sentences.txt`,
    `elmore predict en/ner "Ada Lovelace lived in London."`

    Args:
        run: Folder written by `elmore train`, or the name of an installed task, such as en/ner.
        file: Text file with one example per line; - is standard input. An argument of more than one
            word that is not a file is the text itself, unless it ends like a file name, as in .txt.
        file_format: Format of the file: text, or task for labeled examples in the task's standard
            format.
        tokenizer: Tokenizer of the text; by default, the one used in training. Use whitespace for
            tokenized text. Not available for qa, which has its own.
        language: ISO 639-1 code, for the rules of the tokenizer; by default that of the biLM.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from rich.console import Console
    from rich.markup import escape

    from elmore.tasks import load_task

    if file_format == "task" and (tokenizer or language):
        raise InputError("--tokenizer and --language are for --format text only")
    is_text = _is_text(file)  # before the model is loaded: raises if there is no such file
    if file_format == "task" and is_text:
        raise InputError(f"{file}: no such file")
    trained = load_task(run, task=task, device=device, bilm=model, precision=precision)
    labeled = not is_text and not _LABELED.isdisjoint(Path(file).suffixes)
    if file_format == "text" and labeled:
        print(
            f"elmore: reading {file} as text, one example per line; for labeled examples in the "
            "task's standard format, use --format task",
            file=sys.stderr,
        )
    # A line typed on a terminal is answered at once; files are processed in batches.
    interactive = file == "-" and sys.stdin.isatty()
    outcomes = trained.outcomes(
        trained.read(file) if file_format == "task" else _read_lines(file, replace_invalid),
        trained.tokenizer(tokenizer, language),
        batch_size=1 if interactive else 256,
    )
    console = Console(highlight=False, soft_wrap=True)
    number = errors = 0
    for number, outcome in enumerate(outcomes, 1):
        errors += outcome.error is not None
        if json_output or not sys.stdout.isatty():
            print(json.dumps(trained.as_json(outcome), ensure_ascii=False), flush=interactive)
        elif outcome.error is not None:
            console.print(f"[red]line {number}: {escape(outcome.error)}[/red]")
        else:
            console.print(trained.task.show(outcome.example, outcome.prediction))
    if number == 0 and not interactive:
        raise InputError(f"no predictions: {file} is empty")
    if 0 < errors == number:
        raise InputError(f"no predictions: all lines are blank or invalid ({errors})")
    if errors:
        print(f"elmore: blank or invalid lines without a prediction: {errors}", file=sys.stderr)


def _read_lines(file: str, replace_invalid: bool) -> Iterator[str | InputError]:
    """Yield the lines of a file or a text, and an error for each with invalid characters."""
    from elmore.text.lines import read_lines

    lines = file.splitlines() if _is_text(file) else read_lines(Path(file), replace_invalid=True)
    for line in lines:
        if "\ufffd" in line and not replace_invalid:
            yield InputError(
                "invalid UTF-8, NUL or U+FFFD; use --replace-invalid to predict such lines, too"
            )
        else:
            yield line


def _is_text(file: str) -> bool:
    """Return whether an argument is a text of several words rather than the name of a file.

    Raises:
        InputError: If it is one word, or ends like the name of a file, but there is no such file.
    """
    if not file.strip():
        raise InputError("expected a text or the name of a file, got an empty argument")
    if file == "-" or os.path.exists(file):  # noqa: PTH110, long for a path
        return False
    if len(file.split()) < 2 or Path(file).suffix.lower() in _FILE_SUFFIXES:
        raise InputError(
            f"{file}: no such file. If this is the text to predict, pass it on standard input."
        )
    return True
