"""`elmore predict`: the answers of a trained task."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from elmore.cli.options import Json

_AT_ONCE = 256


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
    """Answer what is typed, line by line: for people on a terminal, as JSON lines in a pipe.

    Example: `elmore predict runs/ner < sentences.txt`

    Args:
        run: Folder written by `elmore train`.
        file: Text, one example a line; - is the standard input.
        tokenizer: How text becomes tokens: as in the training if not given; whitespace for text
            that is tokenized already. Answers of qa are places in a text, so it has its own way.
        language: ISO 639-1 code, for the rules of the tokenizer.
        init_bilm: Where the biLM is, if it has moved since the training.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from rich.console import Console

    from elmore.errors import InputError
    from elmore.tasks import load_task
    from elmore.text.lines import read_lines
    from elmore.text.tokenize import get_tokenizer

    trained = load_task(run, device=device, bilm=init_bilm)
    usual = trained.task.tokenizer(trained.config)
    if tokenizer and usual is None:
        raise InputError(
            f"{trained.task.name} has tokens of its own, which know their places in the text; "
            "leave out --tokenizer"
        )
    split = get_tokenizer(tokenizer or usual or "moses", language)
    # Somebody who types wants each answer at once.
    interactive = str(file) == "-" and sys.stdin.isatty()
    console = Console(highlight=False, soft_wrap=True)

    def examples() -> Iterator[Any]:
        for number, line in enumerate(read_lines(file), 1):
            if not line.strip():
                continue
            try:
                yield trained.task.parse(line, split)
            except InputError as error:
                if not interactive:
                    raise InputError(f"{file}, line {number}: {error}") from error
                print(f"elmore: {error}", file=sys.stderr)  # and wait for a better line

    stream = examples()
    while some := list(islice(stream, 1 if interactive else _AT_ONCE)):
        for example, prediction in zip(some, trained.predict(some), strict=True):
            if json_output or not sys.stdout.isatty():
                found = trained.task.as_json(example, prediction, trained.config)
                print(json.dumps(found, ensure_ascii=False), flush=interactive)
            else:
                console.print(trained.task.show(example, prediction))
