"""Hashes that identify weights, settings and vocabularies by their values."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor


def hash_weights(state: Mapping[str, Tensor]) -> str:
    """Return a hash of a state dict: of its names, shapes and values.

    Equal values have equal hashes, whatever the floating-point type, device or file they come from.
    """
    names = sorted(state)
    with ThreadPoolExecutor() as threads:
        checksums = threads.map(_crc32, map(state.__getitem__, names))
        lines = [
            f"{n} {tuple(state[n].shape)} {c}\n" for n, c in zip(names, checksums, strict=True)
        ]
    return _sha256("".join(lines))


def hash_json(value: Any) -> str:
    """Return a hash of a JSON value, whatever the order of its keys."""
    return _sha256(json.dumps(value, sort_keys=True))


def hash_words(words: Iterable[str]) -> str:
    """Return a hash of a vocabulary, whatever the white space in its file."""
    return hash_json([word.strip() for word in words])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _crc32(tensor: Tensor) -> int:
    # CRC-32 reads 4 GB/s, more than twice as much as any function of hashlib.
    value = tensor.detach().cpu()
    value = value.float() if value.is_floating_point() else value
    return zlib.crc32(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
