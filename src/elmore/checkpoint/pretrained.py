"""Whatever names a model (a folder, released files, an archive) to a biLM."""

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
"""The models that come with the package, a folder each."""

DEFAULT_MODEL = "en"
CARD = "README.md"

_WEIGHTS = (".hdf5", ".h5")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGE = (shutil.ReadError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError)


class Pretrained(NamedTuple):
    """A biLM, where it comes from, and what else its files hold.

    The vocabulary is that of a model that reads words, or, with a softmax, of what it predicts.
    """

    bilm: BiLM
    vocabulary: Vocabulary | None
    provenance: dict[str, Any]
    softmax: Softmax | None = None


def find_model(model: Path | str | None) -> Path:
    """Return where a model is: what is there under its name, else one that ships with elmore."""
    if model is None:
        return SHIPPED / DEFAULT_MODEL
    path = Path(model)
    shipped = SHIPPED / path
    named = len(path.parts) == 1 and (shipped / CONFIG).is_file()
    return shipped if named and not path.exists() else path


def read_pretrained(
    model: Path | str | None = None,
    *,
    options: Path | str | None = None,
    vocab: Path | str | None = None,
    with_softmax: bool = False,
) -> Pretrained:
    """Load a model.

    Args:
        model: A folder written by elmore; released HDF5 weights; a folder or an archive (zip, tar)
            that holds either; the name of a model that ships with elmore, by default `en`.
        options: The options.json of HDF5 weights; looked for beside them if not given.
        vocab: The vocabulary file of a word-input model; looked for beside the weights too.
        with_softmax: Read the softmax of a language model too, if there is one.
    """
    with _unpacked(find_model(model)) as path:
        weights = _find_weights(path)
        if weights.is_dir():
            bilm, provenance = read_directory(weights), read_config(weights).get("provenance", {})
            folder = weights
        else:
            from elmore.checkpoint.hdf5 import read_hdf5  # 12 MB, and time, for those who need it

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
def _unpacked(path: Path) -> Iterator[Path]:
    """Yield the path itself or, for an archive, a temporary folder with its files."""
    if not path.exists():
        raise InputError(
            f"{path}: no such model; expected a folder written by elmore, a folder or an archive "
            f"with released files, HDF5 weights, or {DEFAULT_MODEL} for the English model that "
            "ships with elmore"
        )
    if path.is_dir() or not path.name.endswith(_ARCHIVES):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="elmore-") as folder:
        try:
            # "data" refuses members that would land outside the folder; zip strips such names.
            safe = {} if path.suffix == ".zip" else {"filter": "data"}
            shutil.unpack_archive(path, folder, **safe)  # type: ignore[arg-type]
        except _DAMAGE as error:
            raise InputError(f"{path} is not a readable archive ({error})") from error
        yield Path(folder)


def _find_weights(path: Path) -> Path:
    """Return the elmore folder, or the HDF5 file, that is meant by a path."""
    if path.is_file():
        return path
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    for folder in folders:
        if (folder / CONFIG).is_file():
            return folder
    for folder in folders:
        found = sorted(p for p in folder.iterdir() if p.suffix in _WEIGHTS)
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(p.name for p in found)
            raise InputError(f"{folder} holds several weight files ({names}); name one of them")
    raise InputError(
        f"{path} holds no model; expected {CONFIG} with model.safetensors, or HDF5 weights with "
        "options.json"
    )


def _find_options(weights: Path) -> Path:
    """Return the options beside released weights: `options.json`, or named as they are."""
    candidates = [
        weights.with_name(weights.stem.replace("weights", "options") + ".json"),
        weights.with_name("options.json"),
    ]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise InputError(
        f"{weights} comes without its options: no {candidates[1]}. "
        'Name the file: elmore.load("weights.hdf5", options="options.json"), or --options.'
    )


def _read_vocabulary(bilm: BiLM, folder: Path, vocab: Path | str | None) -> Vocabulary | None:
    size = bilm.config.vocab_size
    if size is None:
        return None
    path = Path(vocab) if vocab else folder / VOCABULARY
    if not path.is_file():
        raise InputError(
            f"{path}: no such file. This model reads words, so it needs its vocabulary, one word "
            'a line: elmore.load(..., vocab="vocab.txt"), or --vocab.'
        )
    vocabulary = Vocabulary.read(path)
    if len(vocabulary) != size:
        raise InputError(
            f"{path} has {len(vocabulary)} words, the model's table {size}: "
            "they do not belong together"
        )
    return vocabulary
