"""Checkpoint directories, elmore's own format: config.json and model.safetensors.

A language model also has softmax.safetensors and vocab.txt; a word-input model has vocab.txt. Large
weights may be split into several files: model-00001-of-00002.safetensors and so on.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import elmore
from elmore.atomic import atomic_file, atomic_folder
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.assign import build
from elmore.checkpoint.meta import on_meta_device
from elmore.checkpoint.quantize import quantize_rows, restore_rows
from elmore.errors import InputError
from elmore.schema import from_mapping
from elmore.text.vocabulary import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOFTMAX, VOCABULARY = "softmax.safetensors", "vocab.txt"
MODEL_TYPE = "elmo"

Dtype = Literal["float32", "float16"]
SoftmaxDtype = Literal["float32", "float16", "int8"]
_SHARD = "model-{:05}-of-{:05}.safetensors"
_IS_SHARD = re.compile(r"model-\d{5}-of-(\d{5})\.safetensors")
_SCALE = "step"  # name of the int8 scales in softmax.safetensors


def write_directory(
    bilm: BiLM,
    path: Path,
    *,
    vocabulary: Vocabulary | None = None,
    softmax: Softmax | None = None,
    provenance: Mapping[str, Any] | None = None,
    dtype: Dtype = "float32",
    softmax_dtype: SoftmaxDtype | None = None,
    max_file_bytes: int | None = None,
) -> None:
    """Save a biLM, or with `softmax` a language model, as a checkpoint directory.

    Args:
        bilm: The model.
        path: The directory, which is replaced if it exists.
        vocabulary: Input vocabulary of a word-input model, or output vocabulary of the softmax.
        softmax: Output layer of the language model.
        provenance: Where the model comes from, in JSON types.
        dtype: Type of the weights in the file; float16 halves its size.
        softmax_dtype: Type of the softmax weights; `dtype` by default. int8 takes a quarter of the
            size of float32.
        max_file_bytes: Split the weights into files of up to this size. A single tensor is never
            split.
    """
    with atomic_folder(path) as folder:
        write_files(
            bilm,
            folder,
            vocabulary=vocabulary,
            softmax=softmax,
            provenance=provenance,
            dtype=dtype,
            softmax_dtype=softmax_dtype,
            max_file_bytes=max_file_bytes,
        )


def write_files(
    bilm: BiLM,
    folder: Path,
    *,
    vocabulary: Vocabulary | None = None,
    softmax: Softmax | None = None,
    provenance: Mapping[str, Any] | None = None,
    dtype: Dtype = "float32",
    softmax_dtype: SoftmaxDtype | None = None,
    max_file_bytes: int | None = None,
) -> None:
    """Write the files of a checkpoint into an existing directory, config.json last.

    The arguments are those of `write_directory`.
    """
    config = {
        "model_type": MODEL_TYPE,
        "elmore_version": elmore.__version__,
        "bilm": asdict(bilm.config),
        "provenance": dict(provenance or {}),
    }
    for name, tensors in _shards(_state_dict(bilm, dtype), max_file_bytes):
        save_tensors(tensors, folder / name)
    if softmax is not None:
        save_tensors(_softmax_state_dict(softmax, softmax_dtype or dtype), folder / SOFTMAX)
    if vocabulary is not None:
        with atomic_file(folder / VOCABULARY) as temporary:
            vocabulary.write(temporary)
    with atomic_file(folder / CONFIG) as temporary:
        text = json.dumps(config, indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _state_dict(module: nn.Module, dtype: str) -> dict[str, Tensor]:
    return {
        name: value.detach().to("cpu", getattr(torch, dtype)).contiguous()
        for name, value in module.state_dict().items()
    }


def _softmax_state_dict(softmax: Softmax, dtype: SoftmaxDtype) -> dict[str, Tensor]:
    if dtype != "int8":
        return _state_dict(softmax, dtype)
    weight, scale = quantize_rows(softmax.weight.detach().cpu())
    return {**_state_dict(softmax, "float16"), "weight": weight, _SCALE: scale}


def _shards(
    state: dict[str, Tensor], max_bytes: int | None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the name and the tensors of each file."""
    shards: list[dict[str, Tensor]] = [{}]
    limit = math.inf if max_bytes is None else max_bytes
    for name, tensor in state.items():
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > limit:
            shards.append({})
        shards[-1][name] = tensor
    if len(shards) == 1:
        yield WEIGHTS, shards[0]
        return
    for i, shard in enumerate(shards, 1):
        yield _SHARD.format(i, len(shards)), shard


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
    weights = chain.from_iterable(map(_read_tensors, _weight_files(path)))
    config = from_mapping(BiLMConfig, settings["bilm"], f"{path / CONFIG}: bilm")
    return build(config, weights, str(path / WEIGHTS))


def _weight_files(path: Path) -> list[Path]:
    """Return model.safetensors or, if the weights are split, all of their files."""
    shards = sorted(file for file in path.iterdir() if _IS_SHARD.fullmatch(file.name))
    if (path / WEIGHTS).exists() or not shards:
        return [path / WEIGHTS]
    count = int(_IS_SHARD.fullmatch(shards[0].name)[1])  # type: ignore[index]
    if [file.name for file in shards] != [_SHARD.format(i, count) for i in range(1, count + 1)]:
        names = ", ".join(file.name for file in shards)
        raise InputError(f"{path} contains {names}; expected {count} weight files. Copy it again.")
    return shards


def read_softmax(path: Path, vocabulary: Vocabulary, dim: int) -> Softmax:
    """Load the softmax of a language model from its checkpoint directory."""
    file = path / SOFTMAX
    state = dict(_read_tensors(file))
    if _SCALE in state:
        state["weight"] = restore_rows(state["weight"], state.pop(_SCALE))
    with on_meta_device():
        softmax = Softmax(dim=dim, vocab_size=len(vocabulary))
    expected = {name: tuple(value.shape) for name, value in softmax.state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    if shapes != expected:
        raise InputError(f"{file} has the shapes {shapes}; its vocabulary requires {expected}")
    softmax.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
    return softmax


def _read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a safetensors file one at a time."""
    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
        for name in names:
            # Reopened for each tensor: pages that were read count as memory until the file closes.
            with safe_open(path, "pt") as file:
                yield name, file.get_tensor(name)
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} contains no {path.name}; expected it next to {CONFIG}"
        ) from None
    except SafetensorError as error:
        raise InputError(
            f"{path} is not a complete safetensors file ({error}). Copy or convert it again."
        ) from error


def read_config(path: Path) -> dict[str, Any]:
    """Read config.json: the configuration is under `bilm`, the origin under `provenance`."""
    file = path / CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not JSON ({error})") from error
    if not isinstance(config, dict) or "bilm" not in config:
        raise InputError(
            f"{file} does not describe a biLM; expected a directory written by `elmore convert` "
            "or `elmore pretrain`"
        )
    return config
