"""Checkpoint directories, elmore's own format: config.json and model.safetensors.

A language model also has softmax.safetensors and vocab.txt; a word-input model has vocab.txt. Large
weights may be split into several files: model-00001-of-00002.safetensors and so on. Files of the
biLM have different tensors; files of the softmax have different rows of the same tensors.

Weights are stored as float32, float16 or int8. With int8, a matrix is stored as integers from -127
to 127, and NAME_scale holds one float32 scale per row: row i of the weights is scale[i] * int8[i].
Biases and convolutions remain float32. Hashes are those of the dequantized weights.
"""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import elmore
from elmore.atomic import (
    atomic_file,
    atomic_folder,
    has_utf8_name,
    lock,
    refuse_existing,
    write_text,
)
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.build import build
from elmore.checkpoint.hash import hash_json, hash_weights, hash_words
from elmore.errors import InputError, as_input_error
from elmore.schema import from_mapping, read_json
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOFTMAX, VOCABULARY = "softmax.safetensors", "vocab.txt"
MODEL_TYPE = "elmo"

Dtype = Literal["float32", "float16", "int8"]
_SHARD, _SHARD_PATTERN = "model-{:05}-of-{:05}.safetensors", "model-?????-of-?????.safetensors"
_SOFTMAX_SHARD = "softmax-{:05}-of-{:05}.safetensors"
_SOFTMAX_SHARD_PATTERN = "softmax-?????-of-?????.safetensors"
MODEL_FILES = (CONFIG, WEIGHTS, _SHARD_PATTERN, SOFTMAX, _SOFTMAX_SHARD_PATTERN, VOCABULARY)
"""Patterns of the names of all files of a model."""
_MAX_TENSORS = 4000  # the largest configuration has fewer; reading time grows with the square
_SCALE = "_scale"
_RENAMED = {"step": "weight_scale"}  # in the softmax of the first English model


@contextmanager
def new_directory(
    path: Path, *, overwrite: bool, inputs: Iterable[Path | str | None] = ()
) -> Iterator[Path]:
    """Yield a temporary folder for `write_directory`, which becomes `path` if the block succeeds.

    Args:
        path: A new or empty directory or, with `overwrite`, a checkpoint directory.
        overwrite: Replace a checkpoint directory, once the new one is complete.
        inputs: Paths that must not be replaced; None is ignored.

    Raises:
        InputError: If `path` contains anything else.
    """
    with lock(path):
        refuse_existing(path, overwrite=overwrite, contents=MODEL_FILES, inputs=inputs)
        if (path / CONFIG).exists():
            read_config(path)  # raises for models of other programs
        with atomic_folder(path) as folder:
            yield folder


def write_directory(
    bilm: BiLM,
    path: Path,
    *,
    vocabulary: Vocabulary | None = None,
    softmax: Softmax | None = None,
    provenance: Mapping[str, Any] | None = None,
    tokenization: Tokenization | None = None,
    dtype: Dtype = "float32",
    softmax_dtype: Dtype | None = None,
    max_file_bytes: int | None = None,
) -> None:
    """Save a biLM, or with `softmax` a language model, as a checkpoint directory.

    The directory may exist, but not contain a model. Its config.json is written last.

    Args:
        bilm: The model.
        path: The directory.
        vocabulary: Input vocabulary of a word-input model, or output vocabulary of the softmax.
        softmax: Output layer of the language model.
        provenance: Where the model comes from, in JSON types.
        tokenization: Tokenizer and language of the training text, if known.
        dtype: Type of the weights in the file; float16 takes half the size of float32, int8 a
            quarter.
        softmax_dtype: Type of the softmax weights; `dtype` by default.
        max_file_bytes: Split the weights into files of up to this size. The softmax is split by
            rows; a single tensor of the biLM is never split.
    """
    refuse_existing(path / CONFIG, overwrite=False)
    config = {
        "model_type": MODEL_TYPE,
        "elmore_version": elmore.__version__,
        "bilm": asdict(bilm.config),
        "text": tokenization and asdict(tokenization),
        "provenance": dict(provenance or {}),
    }
    config["settings_hash"] = _hash_settings(config)
    state = compress(bilm.state_dict(), dtype)
    config["weights_hash"] = hash_weights(decompress(state))
    for name, tensors in _shards(state, max_file_bytes):
        save_tensors(tensors, path / name)
    if softmax is not None:
        state = compress(softmax.state_dict(), softmax_dtype or dtype)
        config["softmax_hash"] = hash_weights(decompress(state))
        for name, tensors in _row_shards(state, max_file_bytes):
            save_tensors(tensors, path / name)
    if vocabulary is not None:
        config["vocabulary_hash"] = hash_words(vocabulary)
        with atomic_file(path / VOCABULARY) as temporary:
            vocabulary.write(temporary)
    write_config(config, path)


def write_config(config: Mapping[str, Any], path: Path) -> None:
    """Write the config.json of a checkpoint directory."""
    write_text(path / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _hash_settings(config: Mapping[str, Any]) -> str:
    """Return the hash of what config.json says about the model, without its provenance."""
    return hash_json([config["bilm"], config.get("text")])


def compress(weights: Mapping[str, Tensor], dtype: Dtype) -> dict[str, Tensor]:
    """Return the tensors to store, with one for the scales of each int8 matrix."""
    state = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    if dtype != "int8":
        return {name: value.to(getattr(torch, dtype)) for name, value in state.items()}
    for name, value in list(state.items()):
        if value.ndim == 2:
            state[name], state[name + _SCALE] = _quantize(value)
    return state


def _quantize(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix as int8, and the scales of its rows."""
    scale = matrix.float().abs().amax(dim=1) / 127
    # With 17 significant bits, 127 * scale is exact, so quantizing again gives the same weights.
    scale.view(torch.int32).bitwise_and_(-128)
    scale[scale == 0] = 1  # avoids 0 / 0
    return (matrix / scale[:, None]).round().to(torch.int8), scale


def decompress(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a state dict that may have int8 matrices and their scales."""
    return {
        name: value * state[name + _SCALE][:, None] if name + _SCALE in state else value
        for name, value in state.items()
        if not _is_scale(name, state)
    }


def _is_scale(name: str, names: Container[str]) -> bool:
    return name.endswith(_SCALE) and name.removesuffix(_SCALE) in names


def _shards(
    state: dict[str, Tensor], max_bytes: int | None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the name and the tensors of each file."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in state.items():
        if shards[-1] and max_bytes is not None and size + tensor.nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    for i, shard in enumerate(shards, 1):
        yield WEIGHTS if len(shards) == 1 else _SHARD.format(i, len(shards)), shard


def _row_shards(
    state: dict[str, Tensor], max_bytes: int | None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the name and the tensors of each file of the softmax, with equally many rows."""
    rows = len(next(iter(state.values())))
    row_bytes = sum(tensor.nbytes for tensor in state.values()) / rows
    max_rows = rows if max_bytes is None else max(1, int(max_bytes / row_bytes))
    count = ceil(rows / max_rows)
    if count == 1:
        yield SOFTMAX, state
        return
    parts = {name: tensor.tensor_split(count) for name, tensor in state.items()}
    for i in range(count):
        shard = {name: part[i].contiguous() for name, part in parts.items()}
        yield _SOFTMAX_SHARD.format(i + 1, count), shard


def save_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file atomically, with the default permissions of a new file."""
    with atomic_file(path) as temporary:
        temporary.touch()  # safetensors makes files that only their owner can read
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, temporary, metadata={"format": "pt", **(metadata or {})})
        except SafetensorError as error:
            raise OSError(f"cannot write {path}: {error}") from error
        temporary.chmod(mode)


def read_directory(path: Path) -> BiLM:
    """Load the biLM of a checkpoint directory.

    Raises:
        InputError: If a file is missing or damaged, or the weights do not match config.json.
    """
    config = read_bilm_config(path)
    files = _files(path, WEIGHTS, _SHARD_PATTERN)
    weights_hash = read_config(path).get("weights_hash")
    return build(partial(BiLM, config), read_weights(files), str(path / WEIGHTS), weights_hash)


def _files(path: Path, name: str, shard_pattern: str) -> list[Path]:
    """Return the files with the weights, or the expected name if there are none."""
    file = path / name
    return [file] if file.exists() else sorted(path.glob(shard_pattern)) or [file]


def read_bilm_config(path: Path) -> BiLMConfig:
    """Read the configuration of the biLM of a checkpoint directory.

    Raises:
        InputError: If it is missing, invalid or damaged.
    """
    settings = read_config(path)
    config = from_mapping(BiLMConfig, settings["bilm"], f"{path / CONFIG}: bilm")
    if settings.get("settings_hash") not in (None, _hash_settings(settings)):
        raise InputError(
            f"{path / CONFIG} is damaged: its settings differ from those that elmore wrote. Copy "
            "or convert the model again. If you changed them yourself, delete settings_hash."
        )
    return config


def read_tokenization(path: Path) -> Tokenization | None:
    """Read how the training text was tokenized; None if the checkpoint directory does not say."""
    text = read_config(path).get("text")
    return text and from_mapping(Tokenization, text, f"{path / CONFIG}: text")


def has_softmax(path: Path) -> bool:
    """Return whether a checkpoint directory has a softmax."""
    return _files(path, SOFTMAX, _SOFTMAX_SHARD_PATTERN)[0].is_file()


def read_softmax(path: Path, vocab_size: int, dim: int) -> Softmax:
    """Load the softmax of a language model from its checkpoint directory."""
    new = partial(Softmax, dim=dim, vocab_size=vocab_size)
    expected_hash = read_config(path).get("softmax_hash")
    weights = read_weights(_files(path, SOFTMAX, _SOFTMAX_SHARD_PATTERN))
    return build(new, weights, str(path / SOFTMAX), expected_hash)


def read_weights(files: Sequence[Path]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights in safetensors files one at a time, int8 matrices as float32.

    A tensor that occurs in several files is the concatenation of its rows.
    """
    parts: dict[str, list[Callable[[], Tensor]]] = {}
    for file in files:
        for name, read in _open_tensors(file):
            parts.setdefault(name, []).append(read)
    tensors = {
        name: reads[0] if len(reads) == 1 else partial(_concatenate, reads, f"{files[0]}: {name}")
        for name, reads in parts.items()
    }
    for name, read in tensors.items():
        if name + _SCALE in tensors:
            matrix, scale = read(), tensors[name + _SCALE]()
            if matrix.ndim != 2 or scale.shape != matrix.shape[:1]:
                raise InputError(
                    f"{files[0]}: {name} has shape {tuple(matrix.shape)} and scales of shape "
                    f"{tuple(scale.shape)}; expected a matrix and one scale per row"
                )
            yield name, matrix.float().mul_(scale[:, None])
        elif not _is_scale(name, tensors):
            yield name, read()


def _concatenate(reads: Sequence[Callable[[], Tensor]], where: str) -> Tensor:
    parts = [read() for read in reads]
    if not parts[0].ndim or len({(part.dtype, part.shape[1:]) for part in parts}) > 1:
        raise InputError(f"{where} differs in type or shape between files. Convert the model again")
    return torch.cat(parts)


def _open_tensors(path: Path) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Yield the names of the tensors of a safetensors file, and functions that read them."""
    if not path.is_file():  # reading a named pipe would wait for a writer
        raise InputError(f"{path.parent} contains no {path.name}; expected it next to {CONFIG}")
    if not has_utf8_name(path):  # safetensors cannot open it
        raise InputError(f"the name {str(path.parent)!r} is not UTF-8. Rename the folder.")

    def read(name: str) -> Tensor:
        # Reopened for each tensor: pages that were read count as memory until the file closes.
        with _open(path) as file:
            return file.get_tensor(name)

    with _open(path) as file:
        names = list(file.keys())
    if len(names) > _MAX_TENSORS:
        raise InputError(f"{path} has {len(names):,} tensors; no model has that many")
    for name in names:
        yield _RENAMED.get(name, name), partial(read, name)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    path.open("rb").close()  # safetensors calls a file without read permission missing
    message = f"{path} is not a complete safetensors file. Copy or convert it again"
    with as_input_error(message, SafetensorError), safe_open(path, "pt") as file:
        yield file


def read_config(path: Path) -> dict[str, Any]:
    """Read config.json: the configuration is under `bilm`, the origin under `provenance`."""
    what = "a directory written by `elmore convert` or `elmore pretrain`"
    config = read_json(path / CONFIG, what)
    if "bilm" not in config:
        raise InputError(f"{path / CONFIG} does not describe a biLM; expected {what}")
    if not isinstance(config.setdefault("provenance", {}), dict):
        raise InputError(f"{path / CONFIG}: expected a table of facts under provenance")
    return config
