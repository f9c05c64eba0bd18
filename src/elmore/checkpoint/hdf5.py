"""Released ELMo files, both ways: options.json + HDF5 weights <-> a biLM.

The HDF5 names and layouts are those of bilm-tf, which AllenNLP reads too. A table of rules says
how each dataset is made of our parameters.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import torch
from torch import Tensor

from elmore.atomic import atomic_file
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.assign import build
from elmore.checkpoint.meta import on_meta_device
from elmore.errors import InputError
from elmore.text.characters import NUM_CHARACTERS


class Rule(NamedTuple):
    """The HDF5 dataset `theirs` holds the parameters `ours`."""

    theirs: str
    ours: tuple[str, ...]
    read: Callable[[Tensor], tuple[Tensor, ...]]
    write: Callable[..., Tensor]


def same(theirs: str, ours: str) -> Rule:
    """Pair a dataset with the parameter that equals it."""
    return Rule(theirs, (ours,), lambda x: (x,), lambda x: x)


def transposed(theirs: str, ours: str) -> Rule:
    """TensorFlow computes x @ W, PyTorch x @ W.T."""
    return Rule(theirs, (ours,), lambda x: (x.T,), lambda x: x.T)


def convolution(theirs: str, ours: str) -> Rule:
    """(1, width, in, out) <-> (out, in, width)."""
    return Rule(
        theirs, (ours,), lambda x: (x[0].permute(2, 1, 0),), lambda x: x.permute(2, 1, 0)[None]
    )


def table(theirs: str, ours: str) -> Rule:
    """Id 0 means "no token here": our table has a row for it, theirs starts at id 1."""
    return Rule(
        theirs, (ours,), lambda x: (torch.cat([torch.zeros_like(x[:1]), x]),), lambda x: x[1:]
    )


def gates(theirs: str, ours: str, in_dim: int) -> Rule:
    """One matrix (in + out, 4H) for [input; recurrent], gates i g f o; ours: i f g o."""
    return Rule(
        theirs,
        (f"{ours}.input.weight", f"{ours}.recurrent.weight"),
        lambda x: (swap_gates(x[:in_dim].T), swap_gates(x[in_dim:].T)),
        lambda i, r: torch.cat([swap_gates(i).T, swap_gates(r).T]),
    )


def gate_bias(theirs: str, ours: str) -> Rule:
    """TensorFlow adds 1 to the forget gate when it runs; we store the sum."""
    return Rule(
        theirs,
        (f"{ours}.input.bias",),
        lambda x: (swap_gates(x) + _forget_one(x),),
        lambda x: swap_gates(x - _forget_one(x)),
    )


def swap_gates(x: Tensor) -> Tensor:
    """[i g f o] <-> [i f g o], along the first axis."""
    i, second, third, o = x.chunk(4)
    return torch.cat([i, third, second, o])


def _forget_one(x: Tensor) -> Tensor:
    one = torch.zeros_like(x)
    one.chunk(4)[1].fill_(1)
    return one


def rules(config: BiLMConfig, cell: str) -> Iterator[Rule]:
    """Yield one rule for each dataset; `cell` is where a layer's weights are, by its number."""
    if config.vocab_size is not None:
        yield table("embedding", "encode.embed.weight")
    else:
        yield table("char_embed", "encode.embed.weight")
        for n in range(len(config.filters)):
            yield convolution(f"CNN/W_cnn_{n}", f"encode.convs.{n}.weight")
            yield same(f"CNN/b_cnn_{n}", f"encode.convs.{n}.bias")
        for n in range(config.num_highways):
            for ours, theirs in (("gate", "carry"), ("transform", "transform")):
                path = f"encode.highways.{n}.{ours}"
                yield transposed(f"CNN_high_{n}/W_{theirs}", f"{path}.weight")
                yield same(f"CNN_high_{n}/b_{theirs}", f"{path}.bias")
        if config.project_filters:
            yield transposed("CNN_proj/W_proj", "encode.project.weight")
            yield same("CNN_proj/b_proj", "encode.project.bias")
    for direction, lstms in enumerate(("forward_lstms", "backward_lstms")):
        for n in range(config.num_layers):
            ours, theirs = f"{lstms}.{n}", f"RNN_{direction}/RNN/{cell.format(n)}"
            yield gates(f"{theirs}/W_0", ours, config.dim)
            yield gate_bias(f"{theirs}/B", ours)
            if config.project_cells:
                yield transposed(f"{theirs}/W_P_0", f"{ours}.project.weight")


CELL = "MultiRNNCell/Cell{}/LSTMCell"
ONLY_CELL = "LSTMCell"
"""How bilm-tf names the cell of a one-layer model, which it can't read back itself."""


def read_hdf5(weights: Path, options: Path) -> BiLM:
    """Read released files into a biLM, or say exactly what does not fit."""
    settings = read_options(options)
    try:
        file = h5py.File(weights)
    except FileNotFoundError:
        raise InputError(f"{weights}: no such file; expected HDF5 weights") from None
    except OSError as error:
        raise InputError(
            f"{weights} is not a readable HDF5 file ({error}). Is it complete, and the weight "
            "file that belongs to these options?"
        ) from error
    with file:
        cell = CELL if "RNN_0/RNN/MultiRNNCell" in file else ONLY_CELL
        config = config_from_options(settings, options, file, cell)
        table_of = list(rules(config, cell))
        missing = [rule.theirs for rule in table_of if rule.theirs not in file]
        if missing:
            raise InputError(
                f"{weights} lacks {len(missing)} of the {len(table_of)} weights that {options} "
                f"asks for, first {missing[0]!r}. Do the two files belong together?"
            )
        return build(config, _weights(file, table_of, config, options), str(weights))


def _weights(
    file: h5py.File, table_of: Sequence[Rule], config: BiLMConfig, options: Path
) -> Iterator[tuple[str, Tensor]]:
    """Yield our parameters, dataset by dataset."""
    with on_meta_device():
        expected = BiLM(config).state_dict()
    for rule in table_of:
        shape = rule.write(*(expected[name] for name in rule.ours)).shape
        found = _tensor(file[rule.theirs])
        if rule.theirs == "char_embed" and len(found) == NUM_CHARACTERS and not found[0].any():
            found = found[1:]  # the row of id 0 is there already
        if found.shape != shape:
            raise InputError(
                f"{file.filename}: {rule.theirs} has shape {tuple(found.shape)}, {options} asks "
                f"for {tuple(shape)}. Do the two files belong together?"
            )
        yield from zip(rule.ours, rule.read(found), strict=True)


def _tensor(dataset: Any) -> Tensor:
    return torch.from_numpy(np.asarray(dataset[...], dtype=np.float32))


def read_options(path: Path) -> Mapping[str, Any]:
    """Read an options file."""
    try:
        options = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON ({error}); expected ELMo's options.json") from error
    if not isinstance(options, dict) or not isinstance(options.get("lstm"), dict):
        raise InputError(
            f"{path} has no section 'lstm'; expected the options.json of an ELMo model"
        )
    return options


def config_from_options(
    options: Mapping[str, Any], where: Path, file: Mapping[str, Any], cell: str
) -> BiLMConfig:
    """Translate released options; keys that are not known here are none of our business.

    Some sizes are not in the options: whether a projection exists shows in the weights alone.
    """
    lstm, cnn = options["lstm"], options.get("char_cnn")
    if options.get("bidirectional") is False:
        raise InputError(
            f"{where} describes a forward language model; expected a bidirectional one"
        )
    characters: dict[str, Any] = {}
    try:
        if cnn is None or ("embedding" in file and "char_embed" not in file):
            characters = {"vocab_size": _rows(file, "embedding")}
        else:
            characters = {
                "max_characters": int(cnn.get("max_characters_per_token", 50)),
                "char_dim": int(cnn["embedding"]["dim"]),
                "filters": tuple((int(width), int(count)) for width, count in cnn["filters"]),
                "activation": cnn.get("activation", "relu"),
                "num_highways": int(cnn.get("n_highway") or 0),
                "project_filters": "CNN_proj/W_proj" in file,
            }
        return BiLMConfig(
            **characters,
            dim=int(lstm["projection_dim"]),
            cell_dim=int(lstm["dim"]),
            project_cells=f"RNN_0/RNN/{cell.format(0)}/W_P_0" in file,
            num_layers=int(lstm.get("n_layers", 1)),
            # What the released training code takes an absent key to mean.
            residual=bool(lstm.get("use_skip_connections", False)),
            cell_clip=_number_or_none(lstm.get("cell_clip")),
            projection_clip=_number_or_none(lstm.get("proj_clip")),
            dropout=float(options.get("dropout", 0.1)),
        )
    except KeyError as error:
        raise InputError(f"{where}: the key {error} is missing from these ELMo options") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from error


def _rows(file: Mapping[str, Any], name: str) -> int | None:
    if name not in file:
        raise InputError(
            f"these options describe no characters, so the weights must hold {name!r}, a table of "
            "word vectors; it is not there"
        )
    return int(file[name].shape[0])


def _number_or_none(value: float | None) -> float | None:
    # 0 and null both switch the clipping off in the released code.
    return float(value) if value else None


def write_hdf5(bilm: BiLM, weights: Path, options: Path) -> None:
    """Write a biLM as released files that AllenNLP and bilm-tf read."""
    state = {name: value.detach().float().cpu() for name, value in bilm.state_dict().items()}
    text = json.dumps(options_from_config(bilm.config), indent=2) + "\n"
    # Both or neither: the two files are of use only together.
    with atomic_file(options) as temporary_options, atomic_file(weights) as temporary:
        temporary_options.write_text(text, encoding="utf-8")
        # Made in memory: the HDF5 library does not survive a disk that fills up under it.
        with h5py.File("weights", "w", driver="core", backing_store=False) as file:
            for rule in rules(bilm.config, CELL):
                file[rule.theirs] = rule.write(*(state[name] for name in rule.ours)).numpy()
            for name, array in _absent_projections(bilm.config):
                file[name] = array
            file.flush()
            temporary.write_bytes(file.id.get_file_image())


def _absent_projections(config: BiLMConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the projections that bilm-tf does without and AllenNLP insists on: identities serve."""
    identity = np.eye(config.dim, dtype=np.float32)
    if config.vocab_size is None and not config.project_filters:
        yield "CNN_proj/W_proj", identity
        yield "CNN_proj/b_proj", np.zeros(config.dim, dtype=np.float32)
    if not config.project_cells:
        for direction in range(2):
            for n in range(config.num_layers):
                yield f"RNN_{direction}/RNN/{CELL.format(n)}/W_P_0", identity


def options_from_config(config: BiLMConfig) -> dict[str, Any]:
    """Describe a biLM in the words of the released options, as for prediction."""
    options: dict[str, Any] = {
        "lstm": {
            "dim": config.cell_dim,
            "projection_dim": config.dim,
            "n_layers": config.num_layers,
            "cell_clip": config.cell_clip,
            "proj_clip": config.projection_clip if config.project_cells else None,
            "use_skip_connections": config.residual,
        }
    }
    if config.vocab_size is None:
        options["char_cnn"] = {
            "embedding": {"dim": config.char_dim},
            "filters": [list(pair) for pair in config.filters],
            "n_highway": config.num_highways,
            "n_characters": NUM_CHARACTERS,
            "max_characters_per_token": config.max_characters,
            "activation": config.activation,
        }
    else:
        options["n_tokens_vocab"] = config.vocab_size
    return options
