"""Load a biLM from a checkpoint directory, released files, an archive, a model name or a hub id."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from typing import Any, NamedTuple

from elmore.atomic import temporary_folder
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.directory import (
    CONFIG,
    SOFTMAX,
    VOCABULARY,
    has_softmax,
    read_config,
    read_directory,
    read_softmax,
    read_tokenization,
)
from elmore.checkpoint.hash import hash_weights, hash_words
from elmore.checkpoint.hub import download, parse_id
from elmore.checkpoint.locate import TASK, installed_tasks
from elmore.checkpoint.packages import INCLUDED, find_package, model_packages
from elmore.errors import InputError
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary

CARD = "README.md"

_MODELS = (
    "HDF5 weights, a directory written by elmore, or a directory or archive that contains one of "
    "these"
)
_WEIGHTS = (".hdf5", ".h5")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_ARCHIVE_ERRORS = (
    EOFError,
    OSError,
    RuntimeError,  # encrypted, or an unknown compression method
    ValueError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    LZMAError,
)
_MAX_COMPRESSION = 100  # weights hardly compress; 100 times their size is an attack on the disk


class Pretrained(NamedTuple):
    """A loaded biLM.

    `vocabulary` is the input vocabulary of a word-input model or, if there is a `softmax`, its
    output vocabulary.
    """

    bilm: BiLM
    vocabulary: Vocabulary | None
    provenance: dict[str, Any]
    softmax: Softmax | None
    weights_hash: str
    """The result of `hash_weights` for the biLM."""

    tokenization: Tokenization | None = None
    """Tokenizer and language of the training text, if known."""


def find_model(model: Path | str | None) -> Path:
    """Return the path of a model: `model` if it exists, else the installed model of that name.

    A model with an id such as `user/model` or `user/model@revision` is downloaded from the Hugging
    Face Hub, unless it is cached.

    Raises:
        InputError: If the package of that model is broken, or it can't be downloaded, or the name
            is that of an installed task.
    """
    if model is None:
        return INCLUDED.folder
    if str(model).startswith(("http:", "https:", "s3:")):
        raise InputError(f"{model} is a URL; download the model first and pass its path")
    path = Path(model)
    if path.exists() or path.name.endswith((*_WEIGHTS, *_ARCHIVES)):
        return path
    if hub_id := parse_id(model):
        if hub_id.revision is None and any(task.name == hub_id.repo for task in installed_tasks()):
            raise _is_a_task(model)
        return download(hub_id)
    if len(path.parts) != 1:
        return path
    package = find_package(path.name)
    return package.folder if package else path


def model_name(model: Path | str | None) -> str:
    """Return the name of a model for results: that of its package, or of its file or folder."""
    # Not resolved: the target of a link may have a cryptic name.
    return Path(INCLUDED.name if model is None else model).absolute().name


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
            archive (zip, tar) that contains either; or, unless a file or folder has that name, the
            name of an installed model or an id on the Hugging Face Hub, `user/model` or
            `user/model@revision`. By default `en`, the included English model.
        options: options.json of HDF5 weights; by default the one next to them.
        vocab: Vocabulary file of a word-input model; by default vocab.txt next to the weights.
        with_softmax: Also load the softmax of a language model, if there is one.

    Raises:
        InputError: If there is no such model, or its files are damaged or do not match.
    """
    source = find_model(model)
    if not source.exists():
        names = ", ".join(package.name for package in model_packages())
        raise InputError(
            f"{source}: no such model; expected the name of an installed model ({names}), "
            f"{_MODELS}. Packages of other models are installed with pip; the released ELMo models "
            "are files to download."
        )
    with extracted(source) as path:
        weights = _find_weights(path)
        if weights.is_dir():
            if options is not None:
                raise InputError(f"{path} has its own config.json; options is for HDF5 weights")
            folder = weights
            config = read_config(folder)
            bilm, provenance = read_directory(folder), config["provenance"]
            weights_hash, vocabulary_hash = map(config.get, ("weights_hash", "vocabulary_hash"))
            tokenization = read_tokenization(folder)
        else:
            # h5py is slow to import.
            import h5py

            from elmore.checkpoint.hdf5 import read_hdf5, read_hdf5_text

            if weights.is_file() and not h5py.is_hdf5(weights):
                raise InputError(
                    f"{weights} is neither an HDF5 file nor an archive ({', '.join(_ARCHIVES)}); "
                    f"expected {_MODELS}"
                )
            folder = weights.parent
            settings = Path(options) if options else _find_options(weights)
            bilm = read_hdf5(weights, settings)
            provenance = {"weights": weights.name, "options": settings.name}
            weights_hash, (tokenization, vocabulary_hash) = None, read_hdf5_text(settings)
        size = bilm.config.vocab_size
        if vocab is not None and size is None:
            raise InputError(f"{vocab}: this model reads characters and needs no vocabulary")
        vocabulary, softmax = None, None
        if with_softmax and has_softmax(folder):
            vocabulary = read_vocabulary(folder / VOCABULARY, vocabulary_hash)
            softmax = read_softmax(folder, len(vocabulary), bilm.config.dim)
        elif size is not None:
            file = Path(vocab) if vocab else folder / VOCABULARY
            vocabulary = read_vocabulary(file, vocabulary_hash, size)
        weights_hash = weights_hash or hash_weights(bilm.state_dict())
        return Pretrained(bilm, vocabulary, provenance, softmax, weights_hash, tokenization)


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """Yield the path itself or, for an archive, a temporary directory with its files."""
    if not path.is_file() or not path.name.endswith(_ARCHIVES):
        yield path
        return
    with temporary_folder() as folder:
        try:
            _extract(path, folder)
        except _ARCHIVE_ERRORS as error:
            if isinstance(error, OSError) and error.errno:  # a full disk, for example
                raise
            reason = " ".join(str(error).split())  # tarfile has one line per compression method
            raise InputError(f"{path} is not a readable archive ({reason})") from error
        try:
            yield folder
        except InputError as error:  # name the member of the archive instead of a temporary file
            raise InputError(str(error).replace(str(folder), str(path))) from None


def _extract(path: Path, folder: Path) -> None:
    """Extract an archive, unless its files are far larger than those of a model can be."""
    bytes_left = _MAX_COMPRESSION * path.stat().st_size + 10**8

    def count(size: int) -> None:
        nonlocal bytes_left
        bytes_left -= size
        if bytes_left < 0:
            raise ValueError(f"its files are over {_MAX_COMPRESSION} times as large as the archive")

    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                count(info.file_size)
                archive.extract(info, folder)
        return
    with tarfile.open(path) as tar:
        for member in tar:
            count(member.size)
            tar.extract(member, folder, filter="data")  # rejects paths outside of the folder
        while rest := tar.fileobj.read(2**20):
            count(len(rest))  # read to the end, where gzip has its checksum


def _find_weights(path: Path) -> Path:
    """Return the checkpoint directory or HDF5 file at a path, or one level below it."""
    if not path.is_dir():
        return path
    for folders in ([path], sorted(p for p in path.iterdir() if p.is_dir())):
        for folder in folders:
            if (folder / "encoder.pkl").is_file():
                raise InputError(f"{folder} is a model of ELMoForManyLangs, which is not supported")
            if (folder / CONFIG).is_file() and any(folder.glob("*.th")):
                raise _trained_by_allennlp(folder)
        models = [folder for folder in folders if (folder / CONFIG).is_file()] or [
            file
            for folder in folders
            for file in sorted(folder.iterdir())
            if file.suffix in _WEIGHTS
        ]
        if len(models) == 1:
            return models[0]
        if models:
            names = ", ".join(str(model.relative_to(path)) for model in models[:5])
            raise InputError(f"{path} contains several models ({names}); pass the path of one")
    if (path / TASK).is_file():
        raise _is_a_task(path)
    if any(path.glob("*.th")) or any(path.glob("*/*.th")):
        raise _trained_by_allennlp(path)
    raise InputError(
        f"{path} contains no model; expected {CONFIG} with model.safetensors, or HDF5 weights with "
        "options.json"
    )


def _is_a_task(model: Path | str) -> InputError:
    return InputError(
        f"{model} is a trained task, not a biLM; use it with `elmore predict` or "
        "`elmore.tasks.load`"
    )


def _trained_by_allennlp(folder: Path) -> InputError:
    return InputError(
        f"{folder} is a trained model of AllenNLP, not a biLM. Pass the ELMo files that it was "
        "trained with; archives of AllenNLP 0.9 contain them as fta/*weight_file and "
        "fta/*options_file. If ELMo was fine-tuned, load the .th file into "
        "elmore.compat.allennlp.Elmo."
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


def read_vocabulary(path: Path, expected_hash: str | None, size: int | None = None) -> Vocabulary:
    """Read the vocabulary of a softmax or, with `size`, of a word-input model."""
    if not path.is_file():
        raise InputError(
            f"{path}: no such file. Pass the path of the vocabulary file of this word-input model, "
            "one word per line, as vocab"
            if size
            else f"{path}: no such file; expected the vocabulary of {SOFTMAX}"
        )
    vocabulary = Vocabulary.read(path)
    if size is not None and len(vocabulary) != size:
        raise InputError(
            f"{path} has {len(vocabulary)} words; the embedding table of the model has {size}. "
            "Do the two files belong together?"
        )
    if expected_hash not in (None, hash_words(vocabulary)):
        raise InputError(
            f"{path} is damaged, or the vocabulary of another model: its words differ from those "
            "that elmore wrote. Copy or convert the model again."
        )
    return vocabulary
