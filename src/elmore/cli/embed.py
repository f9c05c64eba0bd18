"""`elmore embed`: contextual vectors for a file of sentences, or of proteins."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.embed_with_ray import embed_with_ray
from elmore.cli.fasta import DEFAULT_FASTA, FastaOptions, embed_proteins
from elmore.cli.options import (
    DEFAULT_MODEL,
    DEFAULT_RAY,
    Json,
    ModelOptions,
    Output,
    Overwrite,
    RayOptions,
    ReplaceInvalid,
    Resume,
    Text,
)
from elmore.errors import InputError

_REPLACE_INVALID = Parameter(
    help="Replace invalid UTF-8 and NUL with U+FFFD; in a sequence of a FASTA file, replace all "
    "characters but letters with X."
)


def embed(
    text: Text,
    *more: Annotated[Path, Parameter(help="More files, for `--engine ray`.")],
    output: Output,
    model: ModelOptions = DEFAULT_MODEL,
    format_: Annotated[Literal["text", "fasta"], Parameter(name="--format")] = "text",
    layers: Literal["all", "top", "average", "sum"] | int | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    carry_state: Annotated[bool, Parameter(negative="")] = False,
    replace_invalid: Annotated[ReplaceInvalid, _REPLACE_INVALID] = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_output: Json = False,
    fasta: FastaOptions = DEFAULT_FASTA,
    engine: Literal["local", "ray"] = "local",
    ray: RayOptions = DEFAULT_RAY,
) -> None:
    """Write contextual vectors of a text file, one sentence per line, or of a FASTA file.

    Example: `elmore embed news.txt -m elmo/ -o news.parquet --layers top --dtype float16`

    Example: `elmore embed proteins.fasta.gz -m seqvec/ -o proteins.h5 --format fasta --per-protein`

    Example: `elmore embed 'parts/*.parquet' -o out/ --engine ray --column sentence`

    Args:
        output: File to write. Text: .parquet, .arrow (fastest), .h5 (the layout of AllenNLP's
            command) or .npz. FASTA: .h5 or .npz, keyed by id; .npy with the ids in a .json file.
            With `--engine ray`, a folder.
        format_: Format of the input. In a FASTA file, each residue is a token.
        layers: Layers to write: all (default for text), the top one, their average, their sum
            (default for FASTA), or one by its number.
        dtype: Type of the vectors in the file.
        carry_state: Start each sentence from the state at the end of the previous one, as bilm-tf
            does. Slower.
        engine: ray embeds many files on a Ray cluster, or on all cores of this machine. TEXT is
            then a pattern such as 'parts/*.parquet', a folder, or several files: .parquet, .jsonl
            or .txt. Each becomes a file in the output folder. Run the command again to resume.
    """
    if format_ == "fasta":
        if engine == "ray" or more or ray.given():
            raise InputError("--format fasta takes one file, without --engine ray")
        if resume or carry_state:
            option = "--resume" if resume else "--carry-state"
            raise InputError(f"{option} is not available for FASTA files; it is for text")
        embed_proteins(
            text,
            output,
            model,
            fasta,
            layers="sum" if layers is None else layers,
            dtype=dtype,
            replace_invalid=replace_invalid,
            overwrite=overwrite,
            json_output=json_output,
        )
        return
    if fasta != DEFAULT_FASTA:
        raise InputError(
            "--per-protein, --id-field and --split-char are for FASTA files: add --format fasta"
        )
    if engine == "ray":
        if overwrite or carry_state:
            raise InputError(
                "--overwrite and --carry-state are not available with --engine ray; to start over, "
                "choose another output folder"
            )
        embed_with_ray(
            [text, *more],
            output,
            json_output=json_output,
            layers="all" if layers is None else layers,
            dtype=dtype,
            replace_invalid=replace_invalid,
            **asdict(model),
            **ray.given(),
        )
        return
    if more or ray.given():
        what = ", ".join(ray.given()) or "several files"
        raise InputError(f"{what}: only with --engine ray")
    from elmore.progress import with_progress
    from elmore.training.interruption import InterruptedRunError
    from elmore.vectors.embed_file import embed_file

    try:
        result = embed_file(
            text,
            output,
            **asdict(model),
            layers="all" if layers is None else layers,
            dtype=dtype,
            carry_state=carry_state,
            replace_invalid=replace_invalid,
            resume=resume,
            overwrite=overwrite,
            progress=with_progress,
        )
    except KeyboardInterrupt as error:
        hint = "" if carry_state else "; run the same command with --resume to continue"
        raise InterruptedRunError(f"interrupted{hint}") from error
    if json_output:
        print(json.dumps(result._asdict() | {"file": str(result.file)}))
        return
    sentences = f"{result.sentences:,} sentence{'s' if result.sentences != 1 else ''}"
    if resume and not result.words:
        print(f"{result.file} is complete: {sentences}")
        return
    speed = result.words / max(result.seconds, 1e-9)
    print(
        f"{sentences} -> {result.file} "
        f"({result.words:,} words in {result.seconds:.1f} s, {speed:,.0f} words/s)"
    )
