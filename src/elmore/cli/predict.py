"""`elmore predict`: predictions of a trained task."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from elmore.cli.options import Json

_BATCH = 256


def predict(
    run: Path,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)] = Path("-"),
    *,
    tokenizer: Literal["moses", "whitespace", "spacy"] | None = None,
    language: str = "en",
    init_bilm: Annotated[str | None, Parameter(alias="-m")] = None,
    device: str = "auto",
    json_output: Json = False,
) -> None:
    """Predict line by line: formatted on a terminal, as JSON lines in a pipe.

    Example: `elmore predict runs/ner < sentences.txt`

    Args:
        run: Folder written by `elmore train`.
        file: Text file with one example per line; - is standard input.
        tokenizer: Tokenizer of the text; by default, the one used in training. Use whitespace for
            tokenized text. Not available for qa, which needs character offsets.
        language: ISO 639-1 code of the language, for the tokenizer.
        init_bilm: Path of the biLM, if it has moved since training.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from rich.console import Console

    from elmore.errors import InputError
    from elmore.tasks import load_task
    from elmore.text.lines import read_lines
    from elmore.text.tokenize import get_tokenizer

    trained = load_task(run, device=device, bilm=init_bilm)
    default = trained.task.tokenizer(trained.config)
    if tokenizer and default is None:
        raise InputError(f"{trained.task.name} has its own tokenizer: leave out --tokenizer")
    tokenize = get_tokenizer(tokenizer or default or "moses", language)
    # A line typed on a terminal is answered at once; files are processed in batches.
    interactive = str(file) == "-" and sys.stdin.isatty()
    console = Console(highlight=False, soft_wrap=True)

    def examples() -> Iterator[Any]:
        for number, line in enumerate(read_lines(file), 1):
            if not line.strip():
                continue
            try:
                yield trained.task.parse(line, tokenize)
            except InputError as error:
                if not interactive:
                    raise InputError(f"{file}, line {number}: {error}") from error
                print(f"elmore: {error}", file=sys.stderr)  # and wait for the next line

    remaining = examples()
    while batch := list(islice(remaining, 1 if interactive else _BATCH)):
        for example, prediction in zip(batch, trained.predict(batch), strict=True):
            if json_output or not sys.stdout.isatty():
                result = trained.task.as_json(example, prediction, trained.config)
                print(json.dumps(result, ensure_ascii=False), flush=interactive)
            else:
                console.print(trained.task.show(example, prediction))
