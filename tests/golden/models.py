"""Models and sentences of the golden vectors, and the models that each program can read.

This file needs only NumPy and h5py, because `make.py` runs where elmore is not installed.
"""

import hashlib

import numpy as np

from tests.oracles.releases import VARIANTS, Release, Variant

LARGE = Variant(
    dim=128,
    cells=1024,
    char_dim=16,
    filters=((1, 32), (2, 32), (3, 64), (4, 128)),
    cell_clip=1.0,
    proj_clip=1.0,
)
MODELS = VARIANTS | {"large": LARGE}

_BOTH = [
    "usual", "tanh", "no clipping", "one layer", "three layers", "no highway", "unknown keys",
    "large",
]  # fmt: skip
READABLE = {
    "allennlp": [*_BOTH, "CNN_proj although square", "W_P_0 although square", "261 characters",
                 "no n_characters"],
    "bilm_tf": [*_BOTH, "no highway key", "skip off", "width 10", "width 5, cut within words",
                "no CNN_proj", "no W_P_0", "neither projection", "word input",
                "word input, one layer"],
}  # fmt: skip

SAME_WEIGHTS = {"one layer, bilm-tf's names": "one layer", "no skip key": "skip off"}
"""Models that bilm-tf writes but neither program reads, each with a model of the same weights."""

# Each row of the batch has a state. Batches have different sizes: a row that is missing from a
# batch keeps its state, and a new row starts from zeros.
BATCHES = [
    [["The", "bank", "raised", "rates", "."], ["", "\u00a0", "\ud800"], [], ["x" * 120, "Straße"]],
    [["\ud558\ub298\uc744" * 7, "\U0001f642", "nai\u0308ve"], ["<S>", "</S>", "<UNK>"]],
    [["a"], ["of", "the", "river"], ["\u200b", "\ufb01", "Ω"], ["the"], ["e\0f"]],
    [["the", "bank", "."]],
    [["the", "bank"], ["of"], ["river"], ["."]],
]
SENTENCES = [words for batch in BATCHES for words in batch]

SIMPLE_ELMO_MODELS = ["usual", "one layer", "three layers", "skip off", "width 10"]
SIMPLE_ELMO_BATCH = 5  # so SENTENCES are three batches, and a fourth of one sentence
SAME_LENGTH = [["The", "bank", "."], ["of", "the", "river"], ["a", "b", "c"], ["x", "y", "z"],
               ["rates", "rise", "."]]  # fmt: skip

MIX_WEIGHTS = [0.3, -0.5, 0.9]


def stored_dims(vectors: np.ndarray, model: str) -> np.ndarray:
    """Return the dimensions to store: every seventh of the large model, all of other models."""
    return vectors[..., ::7] if model == "large" else vectors


def digest(release: Release) -> str:
    """Return a checksum of all weights."""
    checksum = hashlib.sha256()
    for name in sorted(release.weights):
        checksum.update(name.encode() + release.weights[name].tobytes())
    return checksum.hexdigest()
