"""elmore's own format: a folder with config.json and model.safetensors.

A language model has softmax.safetensors and vocab.txt besides; a model that reads words has the
latter alone. Weights may be in several files, model-00001-of-00002.safetensors and so on, where
one would be too large for those who have to carry it.
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
_PART = "model-{:05}-of-{:05}.safetensors"
_IS_PART = re.compile(r"model-\d{5}-of-(\d{5})\.safetensors")


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
    """Save a biLM, and what makes it a language model, as a folder.

    Args:
        bilm: The model.
        path: The folder; what is there is replaced.
        vocabulary: The words that it reads, or predicts.
        softmax: What it predicts them with.
        provenance: Where it comes from.
        dtype: Type of the weights; float16 halves the file.
        softmax_dtype: Type of the softmax's rows, if another; int8 halves that file again.
        max_file_bytes: Weights that take more are written to several files.
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
    """Write the files of a model into a folder that is there; config.json comes last."""
    config = {
        "model_type": MODEL_TYPE,
        "elmore_version": elmore.__version__,
        "bilm": asdict(bilm.config),
        "provenance": dict(provenance or {}),
    }
    for name, tensors in _parts(_state(bilm, dtype), max_file_bytes):
        save_tensors(tensors, folder / name)
    if softmax is not None:
        save_tensors(_softmax_state(softmax, softmax_dtype or dtype), folder / SOFTMAX)
    if vocabulary is not None:
        with atomic_file(folder / VOCABULARY) as temporary:
            vocabulary.write(temporary)
    with atomic_file(folder / CONFIG) as temporary:
        text = json.dumps(config, indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _state(module: nn.Module, dtype: str) -> dict[str, Tensor]:
    return {
        name: value.detach().to("cpu", getattr(torch, dtype)).contiguous()
        for name, value in module.state_dict().items()
    }


def _softmax_state(softmax: Softmax, dtype: SoftmaxDtype) -> dict[str, Tensor]:
    if dtype != "int8":
        return _state(softmax, dtype)
    multiples, step = quantize_rows(softmax.weight.detach().cpu())
    return {**_state(softmax, "float16"), "weight": multiples, "step": step}


def _parts(
    state: dict[str, Tensor], max_bytes: int | None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield names of files, and the tensors in them: one file, or as many as need be."""
    parts: list[dict[str, Tensor]] = [{}]
    room = math.inf if max_bytes is None else max_bytes
    for name, tensor in state.items():
        if parts[-1] and sum(t.nbytes for t in parts[-1].values()) + tensor.nbytes > room:
            parts.append({})
        parts[-1][name] = tensor
    if len(parts) == 1:
        yield WEIGHTS, parts[0]
        return
    for i, part in enumerate(parts, 1):
        yield _PART.format(i, len(parts)), part


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file that is complete or not there, for all to read."""
    with atomic_file(path) as temporary:
        temporary.touch()  # with a new file's rights: safetensors alone lets only the owner read
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, temporary, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(f"cannot write {path}: {error}") from error
        temporary.chmod(mode)


def read_directory(path: Path) -> BiLM:
    """Load the biLM of a folder."""
    config = read_config(path)
    weights = chain.from_iterable(map(_tensors, _weight_files(path)))
    sizes = from_mapping(BiLMConfig, config["bilm"], f"{path / CONFIG}: bilm")
    return build(sizes, weights, str(path / WEIGHTS))


def _weight_files(path: Path) -> list[Path]:
    """Return the one file of the weights, or all of the several."""
    parts = sorted(file for file in path.iterdir() if _IS_PART.fullmatch(file.name))
    if (path / WEIGHTS).exists() or not parts:
        return [path / WEIGHTS]
    count = int(_IS_PART.fullmatch(parts[0].name)[1])  # type: ignore[index]
    if [file.name for file in parts] != [_PART.format(i, count) for i in range(1, count + 1)]:
        names = ", ".join(file.name for file in parts)
        raise InputError(f"{path} should hold {count} files of weights, found {names}")
    return parts


def read_softmax(path: Path, vocabulary: Vocabulary, dim: int) -> Softmax:
    """Load the softmax of a folder, which is that of a language model."""
    file = path / SOFTMAX
    state = dict(_tensors(file))
    if "step" in state:
        state["weight"] = restore_rows(state["weight"], state.pop("step"))
    with on_meta_device():
        softmax = Softmax(dim=dim, vocab_size=len(vocabulary))
    expected = {name: value.shape for name, value in softmax.state_dict().items()}
    found = {name: value.shape for name, value in state.items()}
    if found != expected:
        raise InputError(f"{file} has the shapes {found}, its vocabulary asks for {expected}")
    softmax.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
    return softmax


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield what a file holds, one by one."""
    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
        for name in names:
            # Opened anew for each: what was read counts as memory until the mapping is closed.
            with safe_open(path, "pt") as file:
                yield name, file.get_tensor(name)
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} holds no {path.name}; expected one beside {CONFIG}"
        ) from None
    except SafetensorError as error:
        raise InputError(
            f"{path} is not a complete safetensors file ({error}). Copy or convert it again."
        ) from error


def read_config(path: Path) -> dict[str, Any]:
    """Read what config.json says: the sizes under `bilm`, the origin under `provenance`."""
    file = path / CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not JSON ({error})") from error
    if not isinstance(config, dict) or "bilm" not in config:
        raise InputError(
            f"{file} does not describe a biLM; expected a folder written by `elmore convert` "
            "or `elmore pretrain`"
        )
    return config
