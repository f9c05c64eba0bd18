"""ONNX: a biLM as one file for ONNX Runtime and other inference engines.

from elmore.integrations.onnx import export

export("elmo.onnx")
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import elmore
from elmore.atomic import atomic_file, lock, refuse_existing
from elmore.checkpoint.hash import hash_weights, hash_words
from elmore.embedder import Embedder, get_embedder
from elmore.errors import InputError, require
from elmore.integrations.onnx.graph import PRODUCER, build_model
from elmore.vectors.embed_file import model_files

_MAX_BYTES = 2**31 - 2**20  # of a protobuf message, less some space for the graph


class ExportedModel(NamedTuple):
    """The file, its size in bytes, and its metadata."""

    file: Path
    bytes: int
    metadata: dict[str, str]


def export(
    output: Path | str,
    model: Embedder | Path | str | None = None,
    *,
    overwrite: bool = False,
    **load_options: Any,
) -> ExportedModel:
    """Write a biLM as an ONNX model in float32.

    The model has one input and two outputs, with dynamic batch size and length:

    - `ids`: int64, (B, T, C) character ids as `elmore.encode_sentences` returns them, or (B, T)
      vocabulary ids of a word-input model. Sentences are between boundary tokens; 0 is padding.
    - `layers`: float32, (B, J, W, 2D), the layers of the words, without the boundary tokens:
      W = T - 2. Padding is zero.
    - `mask`: bool, (B, W), true at words.

    Its metadata has `weights_hash`, `config` (JSON), `tokenizer`, `language`, `elmore_version` and,
    for a word-input model, `vocabulary_hash`.

    Args:
        output: File to write, `*.onnx`.
        model: What `elmore.load` takes, or an `Embedder`, whose `bilm` is exported.
        overwrite: Replace an existing file that this function wrote.
        load_options: The other arguments of `elmore.load`.
    """
    onnx = require("onnx", extra="onnx")
    output = Path(output)
    if output.suffix != ".onnx":
        raise InputError(f"{output}: expected a name that ends in .onnx")
    with lock(output):
        refuse_existing(
            output,
            overwrite=overwrite,
            inputs=model_files(model, load_options),
            is_own=_is_exported,
        )
        elmo = get_embedder(model, load_options, device="cpu")
        size = sum(4 * weights.numel() for weights in elmo.bilm.parameters())
        if size > _MAX_BYTES:
            raise InputError(
                f"the weights have {size / 1e9:.1f} GB in float32, and an ONNX file can hold 2 GB; "
                "choose a smaller model"
            )
        metadata = {
            "elmore_version": elmore.__version__,
            "weights_hash": hash_weights(elmo.bilm.state_dict()),
            "config": json.dumps(asdict(elmo.config)),
            "tokenizer": elmo.tokenizer,
            "language": elmo.language,
        }
        if elmo.vocabulary is not None:
            metadata["vocabulary_hash"] = hash_words(elmo.vocabulary)
        exported = build_model(elmo.bilm)
        onnx.helper.set_model_props(exported, metadata)
        with atomic_file(output) as temporary:
            onnx.save_model(exported, temporary, format="protobuf")
    return ExportedModel(output, output.stat().st_size, metadata)


def _is_exported(path: Path) -> bool:
    """Return whether a file is an ONNX model that `export` wrote."""
    onnx = require("onnx", extra="onnx")
    decode_error = require("google.protobuf.message", extra="onnx").DecodeError
    try:
        found = onnx.load(path, format="protobuf", load_external_data=False)
    except decode_error:
        return False
    return bool(found.producer_name == PRODUCER)
