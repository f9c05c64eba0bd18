"""Files in the format of released ELMo models, with random weights, in all known variants.

This file needs only NumPy and h5py, so that it also runs in the environments of the released
programs, where elmore is not installed.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "bank", "of", "river", ".", "rates"]


class Release(NamedTuple):
    """Paths of a release, and its content."""

    weights_file: Path
    options_file: Path
    weights: dict[str, np.ndarray]
    options: dict[str, Any]
    vocabulary: list[str] | None = None


class Variant(NamedTuple):
    """The options of a release. The defaults are the most common ones."""

    layers: int = 2
    dim: int = 6
    cells: int = 10
    char_dim: int = 3
    filters: tuple[tuple[int, int], ...] = ((1, 4), (2, 6), (3, 8))
    activation: str = "relu"
    highways: int | None = 2
    width: int = 50
    skip: bool = True
    cell_clip: float | None = 0.5
    proj_clip: float | None = 0.3
    cnn_proj: bool = True
    w_p: bool = True
    one_layer_names: bool = False
    words: bool = False
    edit_options: Callable[[dict[str, Any]], Any] = lambda options: None


def drop(*path: str) -> Callable[[dict[str, Any]], Any]:
    """Return a function that removes one key from the options."""

    def edit(options: dict[str, Any]) -> None:
        for key in path[:-1]:
            options = options[key]
        del options[path[-1]]

    return edit


VARIANTS = {
    "usual": Variant(),
    "tanh": Variant(activation="tanh"),
    "skip off": Variant(skip=False),
    "no clipping": Variant(cell_clip=None, proj_clip=None),
    "one layer": Variant(layers=1),
    "one layer, bilm-tf's names": Variant(layers=1, one_layer_names=True),
    "three layers": Variant(layers=3),
    "width 10": Variant(width=10),
    "width 5, cut within words": Variant(width=5),
    "no highway": Variant(highways=0),
    "no highway key": Variant(highways=None, edit_options=drop("char_cnn", "n_highway")),
    "no CNN_proj": Variant(dim=18, cells=20, cnn_proj=False),
    "CNN_proj although square": Variant(dim=18, cells=20),
    "no W_P_0": Variant(dim=6, cells=6, w_p=False),
    "W_P_0 although square": Variant(dim=6, cells=6),
    "neither projection": Variant(dim=18, cells=18, cnn_proj=False, w_p=False),
    "261 characters": Variant(edit_options=lambda o: o["char_cnn"].update(n_characters=261)),
    "no n_characters": Variant(edit_options=drop("char_cnn", "n_characters")),
    "unknown keys": Variant(
        edit_options=lambda o: (
            o["lstm"].update(reverse=True),
            o["char_cnn"].update(projection_after_highway=1),
            o.update(bidirectional=True, dropout=0.2, n_epochs=10, all_clip_norm_val=10.0),
        )
    ),
    "no skip key": Variant(skip=False, edit_options=drop("lstm", "use_skip_connections")),
    "word input": Variant(words=True),
    "word input, one layer": Variant(words=True, layers=1, skip=False),
}


def write_release(folder: Path, variant: Variant, *, seed: int = 0) -> Release:
    """Write random weights.hdf5, options.json and, for word input, vocab.txt."""
    # Raw PCG64 bits are the same in all NumPy versions; its distributions may change.
    bits = np.random.PCG64(seed)

    def draw(*shape: int, fan_in: int | None = None) -> np.ndarray:
        """Draw uniformly, scaled so that a product with `fan_in` inputs is of order 1."""
        unit = (bits.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53  # [0, 1)
        bound = 2 / math.sqrt(fan_in) if fan_in else 0.7
        return ((2 * unit - 1) * bound).astype(np.float32).reshape(shape)

    v = variant
    options: dict[str, Any] = {
        "lstm": {
            "dim": v.cells,
            "projection_dim": v.dim,
            "n_layers": v.layers,
            "cell_clip": v.cell_clip,
            "proj_clip": v.proj_clip,
            "use_skip_connections": v.skip,
        }
    }
    weights: dict[str, np.ndarray] = {}
    if v.words:
        weights["embedding"] = draw(len(VOCABULARY), v.dim)
        options["n_tokens_vocab"] = len(VOCABULARY)
    else:
        options["char_cnn"] = {
            "embedding": {"dim": v.char_dim},
            "filters": [list(pair) for pair in v.filters],
            "n_highway": v.highways,
            "n_characters": 262,
            "max_characters_per_token": v.width,
            "activation": v.activation,
        }
        weights["char_embed"] = draw(261, v.char_dim)
        for n, (size, count) in enumerate(v.filters):
            weights[f"CNN/W_cnn_{n}"] = draw(1, size, v.char_dim, count, fan_in=size * v.char_dim)
            weights[f"CNN/b_cnn_{n}"] = draw(count)
        total = sum(count for _, count in v.filters)
        for n in range(v.highways or 0):
            for name in ("carry", "transform"):
                weights[f"CNN_high_{n}/W_{name}"] = draw(total, total, fan_in=total)
                weights[f"CNN_high_{n}/b_{name}"] = draw(total)
        if v.cnn_proj:
            weights["CNN_proj/W_proj"] = draw(total, v.dim, fan_in=total)
            weights["CNN_proj/b_proj"] = draw(v.dim)
    for d in range(2):
        for n in range(v.layers):
            cell = "LSTMCell" if v.one_layer_names else f"MultiRNNCell/Cell{n}/LSTMCell"
            prefix = f"RNN_{d}/RNN/{cell}"
            weights[f"{prefix}/W_0"] = draw(2 * v.dim, 4 * v.cells, fan_in=2 * v.dim)
            weights[f"{prefix}/B"] = draw(4 * v.cells)
            if v.w_p:
                weights[f"{prefix}/W_P_0"] = draw(v.cells, v.dim, fan_in=v.cells)
    v.edit_options(options)

    folder.mkdir(parents=True, exist_ok=True)
    options_file, weights_file = folder / "options.json", folder / "weights.hdf5"
    options_file.write_text(json.dumps(options))
    with h5py.File(weights_file, "w") as file:
        for name, array in weights.items():
            file[name] = array
    if v.words:
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    return Release(weights_file, options_file, weights, options, VOCABULARY if v.words else None)
