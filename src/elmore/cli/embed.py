"""`elmore embed`: contextual vectors for a file of sentences."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from elmore.cli.options import (
    DEFAULT_MODEL,
    Json,
    ModelOptions,
    Output,
    Overwrite,
    ReplaceInvalid,
    Resume,
    Text,
)


def embed(
    text: Text,
    *,
    output: Output,
    model: ModelOptions = DEFAULT_MODEL,
    layers: Literal["all", "top", "average"] | int = "all",
    dtype: Literal["float32", "float16"] = "float32",
    carry_state: Annotated[bool, Parameter(negative="")] = False,
    replace_invalid: ReplaceInvalid = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Write contextual vectors of a text file, one sentence a line.

    Example: `elmore embed news.txt -m elmo/ -o news.parquet --layers top --dtype float16`

    Args:
        output: File to write: .parquet, .h5 (the layout of AllenNLP's command) or .npz.
        layers: Which vectors of a word: all layers, the top one, their average, or one by number.
        dtype: Type of the numbers in the file.
        carry_state: Read the file as one text, each sentence from the state that the one before
            it left, as bilm-tf does. Slower.
    """
    from elmore.atomic import refuse_existing
    from elmore.cli.progress import with_progress
    from elmore.errors import InputError
    from elmore.text.lines import read_lines
    from elmore.vectors.formats import writer_for
    from elmore.vectors.parts import write_vectors
    from elmore.vectors.rows import VectorForm, VectorRow

    if resume and carry_state:
        raise InputError("--resume does not go with --carry-state: the state was not kept")
    # What can be known to be wrong is said before the model is loaded.
    writer_for(output)
    refuse_existing(output, overwrite=overwrite)
    settings = {**_identity(text), **_plain(model), "layers": layers, "carry_state": carry_state}
    embedder = model.load()
    form = VectorForm(embedder.num_layers if layers == "all" else None, embedder.dim, dtype)
    began, words = time.monotonic(), 0

    def rows_from(start: int) -> Iterator[VectorRow]:
        nonlocal words
        lines = islice(read_lines(text, replace_invalid=replace_invalid), start, None)
        stream = embedder.stream(lines, layers=layers, carry_state=carry_state, dtype=dtype)
        rows = enumerate(with_progress(stream, "sentences embedded"), start)
        for number, (tokens, vectors) in rows:
            words += len(tokens)
            yield VectorRow(number, tokens, vectors)

    try:
        sentences = write_vectors(
            output, rows_from, form, settings=settings, resume=resume, overwrite=overwrite
        )
    except KeyboardInterrupt:
        goes_on = "" if carry_state else "; the same command with --resume goes on"
        print(f"elmore: interrupted{goes_on}", file=sys.stderr)
        raise
    seconds = time.monotonic() - began
    if json_output:
        result = {"file": str(output), "sentences": sentences, "words": words, "seconds": seconds}
        print(json.dumps(result))
    else:
        speed = f"{words:,} words in {seconds:.1f} s, {words / max(seconds, 1e-9):,.0f} words/s"
        print(f"{sentences:,} sentences -> {output} ({speed})")


def _identity(text: Path) -> dict[str, Any]:
    """Return what tells this text from another one, without reading it."""
    from elmore.errors import InputError

    if str(text) == "-":
        return {"text": "-"}
    about = text.stat()
    if text.is_file() and about.st_size == 0:
        raise InputError(f"{text} is empty; expected one sentence a line")
    return {"text": str(text.resolve()), "bytes": about.st_size, "modified": about.st_mtime_ns}


def _plain(model: ModelOptions) -> dict[str, Any]:
    return {
        name: str(value.resolve()) if isinstance(value, Path) else value
        for name, value in asdict(model).items()
        if name != "device"  # another device gives the same vectors
    }
