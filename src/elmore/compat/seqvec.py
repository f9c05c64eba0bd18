"""SeqVec's `get_embeddings` and its command, with the same vectors and files.

    from seqvec.seqvec import get_embeddings          # before
    from elmore.compat.seqvec import get_embeddings   # after

    seqvec -i proteins.fasta -o vectors.h5                           # before
    python -m elmore.compat.seqvec -i proteins.fasta -o vectors.h5   # after

As in seqvec 0.4.1, proteins are sorted by length and computed in batches, and each row of a batch
starts from the LSTM state that the same row of the previous batch has left. The vectors of a
protein therefore depend on the other proteins. Pass `stateful=False` to disable this, or use
`elmore.embed_fasta`, which is also faster.

J layers, N residues of a protein, D width of a vector.
"""

import argparse
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, get_args

import numpy as np
import torch
from jaxtyping import Float

from elmore.compat.allennlp import ElmoEmbedder
from elmore.compat.command import exit_on_error
from elmore.errors import InputError
from elmore.progress import with_progress
from elmore.schema import at_least, check, one_of
from elmore.text.fasta import id_selector, read_records
from elmore.vectors.keyed import check_suffix, write_keyed

Layer = Literal["sum", "all", "CNN", "LSTM1", "LSTM2"]

T = TypeVar("T")

_LAYERS = ("CNN", "LSTM1", "LSTM2")
_HDF5 = (".h5", ".hdf5")
_ELSEWHERE = "choose another field of the headers as id, or an .npz file"
WEIGHTS = "https://github.com/Rostlab/SeqVec#model-availability"
"""Where SeqVec's authors say where its weights are."""

logger = logging.getLogger(__name__)


def get_elmo_model(model_dir: Path | str, cpu: bool, *, stateful: bool = True) -> ElmoEmbedder:
    """Load weights.hdf5 and options.json of a folder.

    Args:
        model_dir: The folder.
        cpu: Use the CPU although there is a GPU.
        stateful: Start each batch from the state of the previous one, as seqvec does.
    """
    weights, options = Path(model_dir) / "weights.hdf5", Path(model_dir) / "options.json"
    if not (weights.exists() and options.exists()):
        raise InputError(
            f"{model_dir} has no weights.hdf5 and options.json. seqvec downloads them; elmore "
            f"downloads nothing, so download them, see {WEIGHTS}, and pass their folder."
        )
    device = 0 if torch.cuda.is_available() and not cpu else -1
    return ElmoEmbedder(options, weights, device, stateful=stateful)


def read_fasta_file(seq_dir: Path | str, split_char: str, id_field: int) -> dict[str, str]:
    """Return the sequences of a FASTA file, or of all files `*fasta*` in a folder, by id.

    As in seqvec, letters become upper case, all characters but white space are residues, and the
    last of several proteins with the same id counts.
    """
    select = id_selector(id_field, split_char)
    path = Path(seq_dir)
    sequences: dict[str, str] = {}
    for file in sorted(path.glob("**/*fasta*")) if path.is_dir() else [path]:
        for name, number, lines in read_records(file, lambda h: select(h.replace(">", ""))):
            if name in sequences:
                logger.warning("%s, line %d: replaces the earlier %s", file, number, name)
            sequences[name] = "".join(residues for _, residues in lines).upper()
    if not sequences:
        raise InputError(f"{seq_dir} has no proteins; expected a FASTA file, or a folder with some")
    return sequences


def get_embeddings(
    seq_dir: Path | str,
    model_dir: Path | str,
    split_char: str = "|",
    id_field: int = 1,
    cpu: bool = False,
    layer: Layer = "sum",
    batchsize: int = 15000,
    per_protein: bool = False,
    *,
    stateful: bool = True,
) -> Iterator[tuple[str, Float[np.ndarray, "..."]]]:
    """Yield the id and the vectors of each protein, the shortest first.

    Args:
        seq_dir: A FASTA file, plain or compressed, or a folder with FASTA files.
        model_dir: The folder with weights.hdf5 and options.json.
        split_char: Separates the fields of a header.
        id_field: The field to use as id, from 0; -1 for the whole header.
        cpu: Use the CPU although there is a GPU.
        layer: `sum` of the layers or one of them, (N, D); `all`, concatenated, (N, J * D).
        batchsize: A batch is complete when it has more than this many residues, or its last protein
            more than half as many.
        per_protein: Yield the mean over the residues instead.
        stateful: Start each batch from the state of the previous one, as seqvec does. If False, the
            vectors of a protein do not depend on other proteins.
    """
    check_options(layer, batchsize)
    sequences = read_fasta_file(seq_dir, split_char, id_field)
    load = partial(get_elmo_model, model_dir, stateful=stateful)
    return _embed(sequences, load(cpu), load, layer, batchsize, per_protein)


def check_options(layer: str, batchsize: int) -> None:
    """Raise `InputError` unless `get_embeddings` takes these arguments."""
    check("layer", layer, one_of(*get_args(Layer)))
    check("batchsize", batchsize, at_least(1))


def _embed(
    sequences: Mapping[str, str],
    model: ElmoEmbedder,
    load: Callable[[bool], ElmoEmbedder],
    layer: Layer,
    batchsize: int,
    per_protein: bool,
) -> Iterator[tuple[str, Float[np.ndarray, "..."]]]:
    """Yield the id and the vectors of each protein; see `get_embeddings`."""
    logger.info("Total number of sequences: %d", len(sequences))
    cpu_model: ElmoEmbedder | None = None

    def fallback(name: str, sequence: str) -> np.ndarray:
        """Embed a protein alone, on the CPU if the memory of the GPU is not enough for it."""
        nonlocal cpu_model
        try:
            return model.embed_sentence(list(sequence))
        except torch.OutOfMemoryError:
            logger.warning("Not enough GPU memory for %s; using the CPU", name)
            cpu_model = cpu_model or load(True)
            return cpu_model.embed_sentence(list(sequence))

    for batch in _batches(sorted(sequences.items(), key=lambda item: len(item[1])), batchsize):
        embeddings: Iterable[np.ndarray]
        try:
            embeddings = model.embed_batch([list(sequence) for _, sequence in batch])
        except torch.OutOfMemoryError:
            logger.warning("Not enough GPU memory for %d proteins; trying each alone", len(batch))
            embeddings = (fallback(name, sequence) for name, sequence in batch)
        for (name, _), embedding in zip(batch, embeddings, strict=True):
            yield name, process_embedding(embedding, per_protein, layer)


def _batches(proteins: list[tuple[str, str]], batchsize: int) -> Iterator[list[tuple[str, str]]]:
    """Group proteins as seqvec does; the state of a row depends on it."""
    batch: list[tuple[str, str]] = []
    residues = 0
    for name, sequence in proteins:
        batch.append((name, sequence))
        residues += len(sequence)
        if residues > batchsize or len(sequence) > batchsize / 2:
            yield batch
            batch, residues = [], 0
    if batch:
        yield batch


def process_embedding(
    embedding: Float[np.ndarray, "J N D"], per_protein: bool, layer: Layer
) -> Float[np.ndarray, "..."]:
    """Combine or select layers, and average over the residues; see `get_embeddings`."""
    if layer == "sum":
        vectors = embedding.sum(axis=0)
    elif layer == "all":
        vectors = np.concatenate(embedding, axis=1)
    elif (index := _LAYERS.index(layer)) < len(embedding):
        vectors = embedding[index]
    else:
        raise InputError(f"a model with {len(embedding)} layers has no {layer}")
    return vectors.mean(axis=0) if per_protein else vectors


def save_from_generator(
    emb_path: Path | str, per_protein: bool, the_generator: Iterable[tuple[str, np.ndarray]]
) -> None:
    """Write what `get_embeddings` yields; as in seqvec, an existing file is replaced.

    Args:
        emb_path: .h5 or .npz, keyed by id; .npy, with the ids in a .json file beside it.
        per_protein: Whether there is one vector per protein, as .npy files need.
        the_generator: Ids and vectors.
    """
    path = Path(emb_path)
    check_output(path, per_protein)
    replaced = path.exists()
    arrays = _with_valid_names(the_generator) if path.suffix in _HDF5 else the_generator
    write_keyed(path, arrays)
    if replaced:
        logger.warning("Replaced %s", path)


def check_output(path: Path, per_protein: bool, ids: Iterable[str] = ()) -> None:
    """Raise `InputError` if `save_from_generator` would refuse this file, or one of these ids."""
    check_suffix(path, per_protein=per_protein)
    if path.suffix in _HDF5:
        for _ in _with_valid_names((name, None) for name in ids):
            pass


def _with_valid_names(items: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    """Yield named items as long as an HDF5 file can have datasets of all these names.

    As in seqvec, `a/b` is the dataset `b` of the group `a`, so there can't be a dataset `a`, too.
    """
    datasets: dict[tuple[str, ...], str] = {}
    groups: dict[tuple[str, ...], str] = {}
    for name, item in items:
        parts = tuple(filter(None, name.split("/")))
        if "." in parts or not name or name.endswith("/"):
            raise InputError(f"HDF5 reserves '/' and '.', so {name!r} can't be an id; {_ELSEWHERE}")
        above = [parts[:length] for length in range(1, len(parts))]
        taken = [groups.get(parts), *(datasets.get(path) for path in (*above, parts))]
        if other := next(filter(None, taken), None):
            raise InputError(
                f"HDF5 separates groups with '/', so the ids {other!r} and {name!r} can't be in "
                f"one file; {_ELSEWHERE}"
            )
        datasets[parts] = name
        groups |= dict.fromkeys(above, name)
        yield name, item


def create_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of seqvec's options, and of `--stateless`."""
    parser = argparse.ArgumentParser(
        prog="python -m elmore.compat.seqvec",
        description="Embed the proteins of FASTA files, with the options and results of seqvec.",
        epilog="Example: python -m elmore.compat.seqvec -i proteins.fasta -o vectors.npy "
        "--model uniref50_v2 --protein",
    )
    add = parser.add_argument
    add("-i", "--input", required=True, type=Path, help="FASTA file, or a folder with FASTA files")
    add(
        "-o",
        "--output",
        required=True,
        type=Path,
        help="file to write: .h5 or .npz; with --protein also .npy, with the ids in a .json file",
    )
    add(
        "--model",
        type=Path,
        default=Path("model"),
        help="folder with weights.hdf5 and options.json (default: %(default)s)",
    )
    add("--protein", action="store_true", help="write the mean over the residues of a protein")
    add(
        "--batchsize",
        type=int,
        default=15000,
        help="compute a batch when it has more residues than this (default: %(default)s)",
    )
    add("--split-char", default="|", help="separates the fields of a header (default: %(default)s)")
    add(
        "--id",
        type=int,
        default=1,
        help="field of the header to use as id, from 0; -1 for all of it (default: %(default)s)",
    )
    add("--cpu", action="store_true", help="use the CPU although there is a GPU")
    add(
        "--layer",
        choices=get_args(Layer),
        default="sum",
        help="sum of the layers, all of them concatenated, or one (default: %(default)s)",
    )
    add("--silent", action="store_true", help="print only warnings and errors")
    add(
        "--stateless",
        action="store_true",
        help="vectors that do not depend on the other proteins; seqvec has no such option",
    )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Invalid input prints a one-line error and exits with code 2."""
    parser = create_arg_parser()
    args = parser.parse_args(arguments)
    level = logging.WARNING if args.silent else logging.INFO
    logging.basicConfig(level=level, format="%(message)s")
    load = partial(get_elmo_model, args.model, stateful=not args.stateless)
    with exit_on_error(parser):
        check_options(args.layer, args.batchsize)
        sequences = read_fasta_file(args.input, args.split_char, args.id)
        check_output(args.output, args.protein, sequences)
        vectors = _embed(sequences, load(args.cpu), load, args.layer, args.batchsize, args.protein)
        shown = vectors if args.silent else with_progress(vectors, "proteins embedded")
        save_from_generator(args.output, args.protein, shown)


if __name__ == "__main__":
    main()
