"""Checkpoint directories, elmore's own format: config.json and model.safetensors.

A language model also has softmax.safetensors and vocab.txt; a word-input model has vocab.txt. Large
weights may be split into several files: model-00001-of-00002.safetensors and so on.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import elmore
from elmore.atomic import atomic_file, atomic_folder, lock, refuse_existing
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.build import build
from elmore.checkpoint.hash import hash_json, hash_weights, hash_words
from elmore.errors import InputError
from elmore.schema import from_mapping, read_json
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOFTMAX, VOCABULARY = "softmax.safetensors", "vocab.txt"
MODEL_TYPE = "elmo"

Dtype = Literal["float32", "float16"]
SoftmaxDtype = Literal["float32", "float16", "int8"]
_SHARD, _SHARD_PATTERN = "model-{:05}-of-{:05}.safetensors", "model-?????-of-?????.safetensors"
_MAX_TENSORS = 2000  # the largest configuration has fewer; reading time grows with the square
_SCALE = "step"  # name of the int8 scales in softmax.safetensors


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
    contents = (CONFIG, WEIGHTS, _SHARD_PATTERN, SOFTMAX, VOCABULARY)
    with lock(path):
        refuse_existing(path, overwrite=overwrite, contents=contents, inputs=inputs)
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
    softmax_dtype: SoftmaxDtype | None = None,
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
        dtype: Type of the weights in the file; float16 halves its size.
        softmax_dtype: Type of the softmax weights; `dtype` by default. int8 takes a quarter of the
            size of float32.
        max_file_bytes: Split the weights into files of up to this size. A single tensor is never
            split.
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
    state = _state_dict(bilm, dtype)
    config["weights_hash"] = hash_weights(state)
    for name, tensors in _shards(state, max_file_bytes):
        save_tensors(tensors, path / name)
    if softmax is not None:
        state = _softmax_state_dict(softmax, softmax_dtype or dtype)
        config["softmax_hash"] = hash_weights(_dequantize(state))
        save_tensors(state, path / SOFTMAX)
    if vocabulary is not None:
        config["vocabulary_hash"] = hash_words(vocabulary)
        with atomic_file(path / VOCABULARY) as temporary:
            vocabulary.write(temporary)
    with atomic_file(path / CONFIG) as temporary:
        text = json.dumps(config, indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _hash_settings(config: Mapping[str, Any]) -> str:
    """Return the hash of what config.json says about the model, without its provenance."""
    return hash_json([config["bilm"], config.get("text")])


def _state_dict(module: nn.Module, dtype: str) -> dict[str, Tensor]:
    return {
        name: value.detach().to("cpu", getattr(torch, dtype)).contiguous()
        for name, value in module.state_dict().items()
    }


def _softmax_state_dict(softmax: Softmax, dtype: SoftmaxDtype) -> dict[str, Tensor]:
    """Return the weights to store; int8 weights have one scale per row, see `_dequantize`."""
    if dtype != "int8":
        return _state_dict(softmax, dtype)
    weight = softmax.weight.detach().cpu()
    scale = weight.abs().amax(dim=1, keepdim=True) / 127  # (V, 1)
    scale[scale == 0] = 1  # avoids 0 / 0
    return {
        **_state_dict(softmax, "float16"),
        "weight": (weight / scale).round().to(torch.int8),
        _SCALE: scale[:, 0],
    }


def _dequantize(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the softmax weights as floating-point numbers."""
    if _SCALE not in state:
        return state
    return {"weight": state["weight"] * state[_SCALE].float()[:, None], "bias": state["bias"]}


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


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file atomically, with the default permissions of a new file."""
    with atomic_file(path) as temporary:
        temporary.touch()  # safetensors makes files that only their owner can read
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, temporary, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(f"cannot write {path}: {error}") from error
        temporary.chmod(mode)


def read_directory(path: Path) -> BiLM:
    """Load the biLM of a checkpoint directory.

    Raises:
        InputError: If a file is missing or damaged, or the weights do not match config.json.
    """
    settings = read_config(path)
    files = [path / WEIGHTS]
    if not files[0].exists():
        files = sorted(path.glob(_SHARD_PATTERN)) or files
    weights = chain.from_iterable(map(_read_tensors, files))
    config = from_mapping(BiLMConfig, settings["bilm"], f"{path / CONFIG}: bilm")
    if settings.get("settings_hash") not in (None, _hash_settings(settings)):
        raise InputError(
            f"{path / CONFIG} is damaged: its settings differ from those that elmore wrote. Copy "
            "or convert the model again. If you changed them yourself, delete settings_hash."
        )
    return build(partial(BiLM, config), weights, str(path / WEIGHTS), settings.get("weights_hash"))


def read_tokenization(path: Path) -> Tokenization | None:
    """Read how the training text was tokenized; None if the checkpoint directory does not say."""
    text = read_config(path).get("text")
    return text and from_mapping(Tokenization, text, f"{path / CONFIG}: text")


def read_softmax(path: Path, vocab_size: int, dim: int) -> Softmax:
    """Load the softmax of a language model from its checkpoint directory."""
    state = _dequantize(dict(_read_tensors(path / SOFTMAX)))
    new = partial(Softmax, dim=dim, vocab_size=vocab_size)
    expected_hash = read_config(path).get("softmax_hash")
    return build(new, state.items(), str(path / SOFTMAX), expected_hash)


def _read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a safetensors file one at a time."""
    if not path.is_file():  # reading a named pipe would wait for a writer
        raise InputError(f"{path.parent} contains no {path.name}; expected it next to {CONFIG}")
    try:
        path.open("rb").close()  # safetensors calls a file without read permission missing
        with safe_open(path, "pt") as file:
            names = list(file.keys())
        if len(names) > _MAX_TENSORS:
            raise InputError(f"{path} has {len(names):,} tensors; no model has that many")
        for name in names:
            # Reopened for each tensor: pages that were read count as memory until the file closes.
            with safe_open(path, "pt") as file:
                yield name, file.get_tensor(name)
    except SafetensorError as error:
        raise InputError(
            f"{path} is not a complete safetensors file ({error}). Copy or convert it again."
        ) from error


def read_config(path: Path) -> dict[str, Any]:
    """Read config.json: the configuration is under `bilm`, the origin under `provenance`."""
    what = "a directory written by `elmore convert` or `elmore pretrain`"
    config = read_json(path / CONFIG, what)
    if "bilm" not in config:
        raise InputError(f"{path / CONFIG} does not describe a biLM; expected {what}")
    if not isinstance(config.setdefault("provenance", {}), dict):
        raise InputError(f"{path / CONFIG}: expected a table of facts under provenance")
    return config
