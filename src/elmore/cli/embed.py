"""`elmore embed`: contextual vectors for a file of sentences, or of proteins."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import (
    DEFAULT_FASTA,
    DEFAULT_MODEL,
    DEFAULT_RAY,
    FastaOptions,
    Json,
    ModelOptions,
    Output,
    Overwrite,
    RayOptions,
    ReplaceInvalid,
    Resume,
    Text,
)
from elmore.cli.show import count, explain_interruption, rate, show
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
    carry_state: bool = False,
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
    from elmore.progress import with_progress

    options = {**asdict(model), "dtype": dtype, "replace_invalid": replace_invalid}
    options |= {"progress": with_progress} | ({} if layers is None else {"layers": layers})
    if format_ == "fasta":
        if engine == "ray" or more or ray.given():
            raise InputError("--format fasta takes one file, without --engine ray")
        if resume or carry_state:
            option = "--resume" if resume else "--carry-state"
            raise InputError(f"{option} is not available for FASTA files; it is for text")
        from elmore.vectors.embed_fasta import embed_fasta

        proteins = embed_fasta(text, output, **options, **asdict(fasta), overwrite=overwrite)
        speed = rate(proteins.residues, "residues", proteins.seconds)
        what = f"{count(proteins.proteins, 'protein')} -> {output} {speed}"
        show(proteins, what, as_json=json_output)
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
        from elmore.integrations.ray import embed_partitions

        with explain_interruption("; run the same command again to continue"):
            run = embed_partitions([text, *more], output, **options, **ray.given())
        rows = f"{count(run.sentences, 'sentence')} in {count(run.partitions, 'partition')}"
        skipped = f", {run.skipped:,} of them complete before" if run.skipped else ""
        what = f"{rows}{skipped} -> {output} {rate(run.words, 'words', run.seconds)}"
        if run.skipped == run.partitions:
            what = f"{output} is complete: {rows}"
        show(run, what, as_json=json_output)
        return
    if more or ray.given():
        if not ray.given():
            raise InputError(
                "several files: join them, as in `cat FILES | elmore embed - -o FILE`, or use "
                "--engine ray"
            )
        raise InputError(f"{', '.join(ray.given())}: only with --engine ray")
    from elmore.vectors.embed_file import embed_file

    hint = "" if carry_state else "; run the same command with --resume to continue"
    with explain_interruption(hint):
        result = embed_file(
            text, output, **options, carry_state=carry_state, resume=resume, overwrite=overwrite
        )
    sentences = count(result.sentences, "sentence")
    what = f"{sentences} -> {output} {rate(result.words, 'words', result.seconds)}"
    if resume and not result.words:
        what = f"{output} is complete: {sentences}"
    show(result, what, as_json=json_output)
