"""`elmore embed --format fasta`: contextual vectors for the residues of proteins."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from elmore.cli.options import ModelOptions


@Parameter(name="*", group=Group("FASTA options"))
@dataclass(frozen=True, kw_only=True)
class FastaOptions:
    """Options for FASTA files alone."""

    per_protein: Annotated[bool, Parameter(negative="")] = False
    """Write one vector per protein, the mean over its residues."""

    id_field: Annotated[int | None, Parameter(allow_leading_hyphen=True)] = None
    """Field of the headers to use as id: a number from 0, or -1 for the whole header. By default
    the first word."""

    split_char: Annotated[str, Parameter(allow_leading_hyphen=True)] = "|"
    """Separates the fields of a header."""


DEFAULT_FASTA = FastaOptions()


def embed_proteins(
    fasta: Path,
    output: Path,
    model: ModelOptions,
    options: FastaOptions,
    *,
    json_output: bool,
    **settings: Any,
) -> None:
    """Write the vectors, and print how many; see `embed_fasta`."""
    from elmore.progress import with_progress
    from elmore.vectors.embed_fasta import embed_fasta

    result = embed_fasta(
        fasta, output, **asdict(model), **asdict(options), **settings, progress=with_progress
    )
    if json_output:
        print(json.dumps(result._asdict() | {"file": str(result.file)}))
        return
    speed = result.residues / max(result.seconds, 1e-9)
    print(
        f"{result.proteins:,} protein{'s' if result.proteins != 1 else ''} -> {result.file} "
        f"({result.residues:,} residues in {result.seconds:.1f} s, {speed:,.0f} residues/s)"
    )
