"""elmore's own format: a folder with config.json and model.safetensors.

A language model has softmax.safetensors and vocab.txt besides; a model that reads words has the
latter alone.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import elmore
from elmore.atomic import atomic_file, atomic_folder
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.assign import build
from elmore.errors import InputError
from elmore.schema import from_mapping
from elmore.text.vocabulary import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOFTMAX, VOCABULARY = "softmax.safetensors", "vocab.txt"
MODEL_TYPE = "elmo"


def write_directory(
    bilm: BiLM,
    path: Path,
    *,
    vocabulary: Vocabulary | None = None,
    softmax: Softmax | None = None,
    provenance: Mapping[str, Any] | None = None,
    dtype: Literal["float32", "float16"] = "float32",
) -> None:
    """Save a biLM, and what makes it a language model; float16 halves the files."""
    with atomic_folder(path) as folder:
        write_files(
            bilm,
            folder,
            vocabulary=vocabulary,
            softmax=softmax,
            provenance=provenance,
            dtype=dtype,
        )


def write_files(
    bilm: BiLM,
    folder: Path,
    *,
    vocabulary: Vocabulary | None = None,
    softmax: Softmax | None = None,
    provenance: Mapping[str, Any] | None = None,
    dtype: Literal["float32", "float16"] = "float32",
) -> None:
    """Write the files of a model into a folder that is there; config.json comes last."""
    config = {
        "model_type": MODEL_TYPE,
        "elmore_version": elmore.__version__,
        "bilm": asdict(bilm.config),
        "provenance": dict(provenance or {}),
    }
    _save(bilm, folder / WEIGHTS, dtype)
    if softmax is not None:
        _save(softmax, folder / SOFTMAX, dtype)
    if vocabulary is not None:
        with atomic_file(folder / VOCABULARY) as temporary:
            vocabulary.write(temporary)
    with atomic_file(folder / CONFIG) as temporary:
        text = json.dumps(config, indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _save(module: nn.Module, path: Path, dtype: str) -> None:
    state = {
        name: value.detach().to("cpu", getattr(torch, dtype)).contiguous()
        for name, value in module.state_dict().items()
    }
    with atomic_file(path) as temporary:
        temporary.touch()  # with a new file's rights: safetensors alone lets only the owner read
        mode = temporary.stat().st_mode
        try:
            save_file(state, temporary, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(f"cannot write {path}: {error}") from error
        temporary.chmod(mode)


def read_directory(path: Path) -> BiLM:
    """Load the biLM of a folder."""
    config = read_config(path)
    weights = path / WEIGHTS
    state = _load(weights)
    return build(
        from_mapping(BiLMConfig, config["bilm"], f"{path / CONFIG}: bilm"), state, str(weights)
    )


def read_softmax(path: Path, vocabulary: Vocabulary, dim: int) -> Softmax:
    """Load the softmax of a folder, which is that of a language model."""
    file = path / SOFTMAX
    state = _load(file)
    with torch.device("meta"):
        softmax = Softmax(dim=dim, vocab_size=len(vocabulary))
    expected = {name: value.shape for name, value in softmax.state_dict().items()}
    found = {name: value.shape for name, value in state.items()}
    if found != expected:
        raise InputError(f"{file} has the shapes {found}, its vocabulary asks for {expected}")
    softmax.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
    return softmax


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
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
