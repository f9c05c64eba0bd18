"""`elmore embed`: contextual vectors for a file of sentences."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import (
    DeviceOption,
    Json,
    Model,
    Options,
    Output,
    Overwrite,
    PrecisionOption,
    ReplaceInvalid,
    Text,
    TokenizerOption,
    Vocab,
)


def embed(
    text: Text,
    *,
    output: Output,
    model: Model = None,
    options: Options = None,
    vocab: Vocab = None,
    layers: Literal["all", "top", "average"] | int = "all",
    dtype: Literal["float32", "float16"] = "float32",
    tokenizer: TokenizerOption = "moses",
    carry_state: Annotated[bool, Parameter(negative="")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    replace_invalid: ReplaceInvalid = False,
    resume: Annotated[bool, Parameter(negative="")] = False,
    overwrite: Overwrite = False,
    json_output: Annotated[Json, Parameter(name="--json")] = False,
) -> None:
    """Write contextual vectors of a text file, one sentence a line.

    Example: `elmore embed news.txt -m elmo/ -o news.parquet --layers top --dtype float16`

    Args:
        output: File to write: .parquet, .h5 (the layout of AllenNLP's command) or .npz.
        layers: Which vectors of a word: all layers, the top one, their average, or one by number.
        dtype: Type of the numbers in the file.
        carry_state: Read the file as one text, as the released programs did. Slower.
        resume: Go on with an interrupted run.
    """
    from elmore.cli.progress import with_progress
    from elmore.embedder import load
    from elmore.errors import InputError
    from elmore.text.lines import read_lines
    from elmore.vectors.formats import VectorForm, VectorRow, writer_for
    from elmore.vectors.parts import write_vectors

    if resume and carry_state:
        raise InputError("--resume does not go with --carry-state: the state was not kept")
    writer_for(output)
    _check_not_empty(text)
    embedder = load(
        model,
        options=options,
        vocab=vocab,
        device=device,
        precision=precision,
        tokenizer=tokenizer,
    )
    form = VectorForm(embedder.num_layers if layers == "all" else None, embedder.dim, dtype)
    began, words = time.monotonic(), 0

    def rows_from(start: int) -> Iterator[VectorRow]:
        nonlocal words
        lines = islice(read_lines(text, replace_invalid=replace_invalid), start, None)
        stream = embedder.stream(lines, layers=layers, carry_state=carry_state)
        rows = enumerate(with_progress(stream, "sentences embedded"), start)
        for number, (tokens, vectors) in rows:
            words += len(tokens)
            yield VectorRow(number, tokens, vectors)

    settings = {
        "text": str(text.resolve()),
        "model": str(model),
        "layers": layers,
        "tokenizer": tokenizer,
        "precision": precision,
    }
    sentences = write_vectors(
        output, rows_from, form, settings=settings, resume=resume, overwrite=overwrite
    )
    seconds = time.monotonic() - began
    if json_output:
        result = {"sentences": sentences, "words": words, "seconds": seconds, "file": str(output)}
        print(json.dumps(result))
    else:
        print(
            f"{sentences:,} sentences, {words:,} words in {seconds:.1f} s "
            f"({words / max(seconds, 1e-9):,.0f} words/s) -> {output}"
        )


def _check_not_empty(text: Path) -> None:
    from elmore.errors import InputError

    if text.is_file() and text.stat().st_size == 0:
        raise InputError(f"{text} is empty; expected one sentence a line")
