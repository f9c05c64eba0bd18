"""Load a biLM from a checkpoint directory, released files, an archive, or a model name."""

import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from typing import Any, NamedTuple

import elmore
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.directory import (
    CONFIG,
    SOFTMAX,
    VOCABULARY,
    read_config,
    read_directory,
    read_softmax,
)
from elmore.errors import InputError
from elmore.text.vocabulary import Vocabulary

SHIPPED = Path(elmore.__file__).with_name("models")
"""Models that are included in the package, one directory per model."""

DEFAULT_MODEL = "en"
CARD = "README.md"

_WEIGHTS = (".hdf5", ".h5")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_ARCHIVE_ERRORS = (
    shutil.ReadError,
    EOFError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    LZMAError,
)


class Pretrained(NamedTuple):
    """A loaded biLM.

    `vocabulary` is the input vocabulary of a word-input model or, if there is a `softmax`, its
    output vocabulary.
    """

    bilm: BiLM
    vocabulary: Vocabulary | None
    provenance: dict[str, Any]
    softmax: Softmax | None = None


def find_model(model: Path | str | None) -> Path:
    """Return the path of a model: `model` if it exists, else the included model of that name."""
    if model is None:
        return SHIPPED / DEFAULT_MODEL
    path = Path(model)
    shipped = SHIPPED / path
    is_shipped = len(path.parts) == 1 and (shipped / CONFIG).is_file()
    return shipped if is_shipped and not path.exists() else path


def read_pretrained(
    model: Path | str | None = None,
    *,
    options: Path | str | None = None,
    vocab: Path | str | None = None,
    with_softmax: bool = False,
) -> Pretrained:
    """Load a model.

    Args:
        model: A checkpoint directory written by elmore; released HDF5 weights; a directory or an
            archive (zip, tar) that contains either; or the name of a model that is included in
            elmore. By default `en`, the included English model.
        options: options.json of HDF5 weights; by default the one next to them.
        vocab: Vocabulary file of a word-input model; by default vocab.txt next to the weights.
        with_softmax: Also load the softmax of a language model, if there is one.

    Raises:
        InputError: If there is no such model, or its files are damaged or do not match.
    """
    with _extracted(find_model(model)) as path:
        weights = _find_weights(path)
        if weights.is_dir():
            bilm, provenance = read_directory(weights), read_config(weights).get("provenance", {})
            folder = weights
        else:
            from elmore.checkpoint.hdf5 import read_hdf5  # h5py is slow to import

            settings = Path(options) if options else _find_options(weights)
            bilm = read_hdf5(weights, settings)
            provenance = {"weights": weights.name, "options": settings.name}
            folder = weights.parent
        if with_softmax and (folder / SOFTMAX).is_file():
            vocabulary = Vocabulary.read(folder / VOCABULARY)
            softmax = read_softmax(folder, vocabulary, bilm.config.dim)
            return Pretrained(bilm, vocabulary, provenance, softmax)
        return Pretrained(bilm, _read_vocabulary(bilm, folder, vocab), provenance)


@contextmanager
def _extracted(path: Path) -> Iterator[Path]:
    """Yield the path itself or, for an archive, a temporary directory with its files."""
    if not path.exists():
        raise InputError(
            f"{path}: no such model; expected a directory written by elmore, HDF5 weights, a "
            f"directory or an archive with either, or {DEFAULT_MODEL} for the included English "
            "model"
        )
    if path.is_dir() or not path.name.endswith(_ARCHIVES):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="elmore-") as folder:
        try:
            # "data" rejects tar members outside the directory; shutil skips them in zip files.
            safe = {} if path.suffix == ".zip" else {"filter": "data"}
            shutil.unpack_archive(path, folder, **safe)  # type: ignore[arg-type]
        except _ARCHIVE_ERRORS as error:
            raise InputError(f"{path} is not a readable archive ({error})") from error
        yield Path(folder)


def _find_weights(path: Path) -> Path:
    """Return the checkpoint directory or HDF5 file at a path, or one level below it."""
    if path.is_file():
        return path
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    for folder in folders:
        if (folder / CONFIG).is_file():
            return folder
    for folder in folders:
        files = sorted(p for p in folder.iterdir() if p.suffix in _WEIGHTS)
        if len(files) == 1:
            return files[0]
        if files:
            names = ", ".join(p.name for p in files)
            raise InputError(
                f"{folder} contains several weight files ({names}); pass the path of one of them"
            )
    raise InputError(
        f"{path} contains no model; expected {CONFIG} with model.safetensors, or HDF5 weights with "
        "options.json"
    )


def _find_options(weights: Path) -> Path:
    """Return the options next to HDF5 weights: X_options.json for X_weights.hdf5, or options.json.

    Raises `InputError` if there are none.
    """
    candidates = [
        weights.with_name(weights.stem.replace("weights", "options") + ".json"),
        weights.with_name("options.json"),
    ]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise InputError(
        f"{weights}: no {candidates[1].name} next to these weights; pass the path of their options "
        "file as options"
    )


def _read_vocabulary(bilm: BiLM, folder: Path, vocab: Path | str | None) -> Vocabulary | None:
    size = bilm.config.vocab_size
    if size is None:
        return None
    path = Path(vocab) if vocab else folder / VOCABULARY
    if not path.is_file():
        raise InputError(
            f"{path}: no such file. This is a word-input model; pass the path of its vocabulary "
            "file, one word per line, as vocab"
        )
    vocabulary = Vocabulary.read(path)
    if len(vocabulary) != size:
        raise InputError(
            f"{path} has {len(vocabulary)} words; the embedding table of the model has {size}. "
            "Do the two files belong together?"
        )
    return vocabulary
