"""elmore's own format: a folder with config.json, model.safetensors and perhaps vocab.txt."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import elmore
from elmore.atomic import atomic_folder
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.assign import build
from elmore.errors import InputError
from elmore.schema import from_mapping
from elmore.text.vocabulary import Vocabulary

CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocab.txt"
MODEL_TYPE = "elmo"


def write_directory(
    bilm: BiLM,
    path: Path,
    *,
    vocabulary: Vocabulary | None = None,
    provenance: Mapping[str, Any] | None = None,
    dtype: Literal["float32", "float16"] = "float32",
) -> None:
    """Save a biLM; float16 halves the file, and computing stays in float32."""
    config = {
        "model_type": MODEL_TYPE,
        "elmore_version": elmore.__version__,
        "bilm": asdict(bilm.config),
        "provenance": dict(provenance or {}),
    }
    state = {
        name: value.detach().to("cpu", getattr(torch, dtype)).contiguous()
        for name, value in bilm.state_dict().items()
    }
    with atomic_folder(path) as folder:
        save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
        if vocabulary is not None:
            vocabulary.write(folder / VOCABULARY)
        text = json.dumps(config, indent=2, ensure_ascii=False)
        (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
        shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # safetensors lets only the owner read


def read_directory(path: Path) -> BiLM:
    """Load the biLM of a folder."""
    config = read_config(path)
    weights = path / WEIGHTS
    try:
        state = load_file(weights)
    except FileNotFoundError:
        raise InputError(f"{path} holds no {WEIGHTS}; expected one beside {CONFIG}") from None
    except SafetensorError as error:
        raise InputError(
            f"{weights} is not a complete safetensors file ({error}). Copy or convert it again."
        ) from error
    return build(
        from_mapping(BiLMConfig, config["bilm"], f"{path / CONFIG}: bilm"), state, str(weights)
    )


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
