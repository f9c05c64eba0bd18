"""A FASTA file in, a file of protein vectors out.

J layers, N residues of a protein, D width of a vector.
"""

import time
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import elmore
from elmore.errors import InputError
from elmore.progress import Progress, track
from elmore.text.fasta import Protein, read_fasta
from elmore.vectors.embed_file import model_files
from elmore.vectors.keyed import check_key, check_keyed, write_keyed
from elmore.vectors.rows import Dtype

if TYPE_CHECKING:
    from elmore.embedder import Embedder
    from elmore.inference.layers import Layers

_BATCH_RESIDUES = {"cpu": 16_384}
"""Proteins are much longer than sentences. On a CPU, larger batches use the weights more often."""


class EmbeddedProteins(NamedTuple):
    """The file, the number of proteins in it, their residues, and the seconds it took."""

    file: Path
    proteins: int
    residues: int
    seconds: float


def embed_fasta(
    fasta: Path | str,
    output: Path | str,
    model: "Embedder | Path | str | None",
    *,
    layers: "Layers" = "sum",
    per_protein: bool = False,
    id_field: int | None = None,
    split_char: str = "|",
    dtype: Dtype = "float32",
    replace_invalid: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **load_options: Any,
) -> EmbeddedProteins:
    """Write the vectors of the proteins of a FASTA file, one residue per token.

    A protein has the same vectors whatever else is in the file. All sequences are read and checked
    before the first one is embedded; they are in memory, one byte per residue. Long proteins are
    never truncated.

    Args:
        fasta: FASTA file, optionally .gz, .xz, .bz2 or .zst; `-` is standard input.
        output: File to write: .h5, .hdf5 or .npz, keyed by id; or .npy, an array with one row per
            protein in the order of the FASTA file, whose ids are in a .json file beside it.
        model: What `load` takes, such as the folder of SeqVec, or an `Embedder`.
        layers: `sum` of the layers, as in SeqVec, `average`, `top` or a layer number, (N, D) for
            each protein; `all` layers, (J, N, D).
        per_protein: Write the mean over the residues, (D,) or (J, D).
        id_field: The number of a field of the headers, from 0, to use as id; -1 for the whole
            header. By default the first word of the header.
        split_char: Separates the fields of a header.
        dtype: Type of the vectors in the file.
        replace_invalid: Replace characters that are not letters, such as `*` and `-`, with `X`.
        overwrite: Replace an existing file that elmore wrote.
        progress: Shows progress: called with an iterable and a description, returns an iterable,
            like `tqdm.tqdm`. None shows nothing.
        load_options: The other arguments of `load`, such as `device` and `precision`.

    Raises:
        InputError: If the FASTA file is invalid, with the line number; if the output exists or has
            another suffix; or if the arguments do not fit together.
    """
    if not isinstance(fasta, str | PathLike):
        raise TypeError(f"expected the path of a FASTA file, got {type(fasta).__name__}")
    if model is None:
        raise InputError(
            "no model; FASTA files need one that was trained on proteins, such as the folder of "
            "SeqVec"
        )
    fasta, output = Path(fasta), Path(output)
    for name in ("tokenizer", "language"):
        if load_options.get(name) is not None:
            raise InputError(f"{name} is for text; in a FASTA file, each residue is a token")
    inputs = [fasta, *model_files(model, load_options)]
    check_keyed(output, per_protein=per_protein, overwrite=overwrite, inputs=inputs)
    if fasta.is_dir():
        raise InputError(f"{fasta} is a directory; expected a FASTA file")
    ids = {"id_field": id_field, "split_char": split_char}
    proteins = list(read_fasta(fasta, **ids, replace_invalid=replace_invalid))  # type: ignore[arg-type]
    for protein in proteins:
        try:
            check_key(protein.id, output)
        except InputError as error:
            raise InputError(
                f"{fasta}, line {protein.line}: {error}. Choose another field, or another format."
            ) from None
    from elmore.embedder import get_embedder  # PyTorch, once the files are checked

    embedder = get_embedder(model, load_options)
    began = time.monotonic()
    arrays = embed_proteins(embedder, proteins, layers=layers, per_protein=per_protein, dtype=dtype)
    write_keyed(
        output,
        track(arrays, "proteins embedded", progress),
        settings={
            "elmore_version": elmore.__version__,
            "weights_hash": embedder.weights_hash,
            "layers": layers,
            "per_protein": per_protein,
            "precision": embedder.precision,
            "dtype": dtype,
        },
        order=[protein.id for protein in proteins],
    )
    residues = sum(len(protein.sequence) for protein in proteins)
    return EmbeddedProteins(output, len(proteins), residues, time.monotonic() - began)


def embed_proteins(
    embedder: "Embedder",
    proteins: list[Protein],
    *,
    layers: "Layers" = "sum",
    per_protein: bool = False,
    dtype: Dtype = "float32",
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the id and the vectors of each protein, the longest ones first.

    The arguments are those of `embed_fasta`. Proteins of similar length are computed together.
    """
    longest_first = sorted(proteins, key=lambda protein: -len(protein.sequence))
    stream = embedder.stream(
        (list(protein.sequence) for protein in longest_first),
        layers=layers,
        batch_words=_BATCH_RESIDUES.get(embedder.device.type),
        dtype="float32" if per_protein else dtype,
    )
    for protein, (_, vectors) in zip(longest_first, stream, strict=True):
        if per_protein:
            vectors = vectors.mean(axis=-2, dtype=np.float64).astype(dtype)
        yield protein.id, vectors
