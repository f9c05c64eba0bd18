"""Read and write the format of the released models: options.json and HDF5 weights.

The format is that of bilm-tf, which AllenNLP also reads. A list of rules maps each HDF5 dataset to
parameters of `BiLM`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import torch
from torch import Tensor

from elmore.atomic import atomic_file
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.build import build, on_meta_device
from elmore.checkpoint.directory import VOCABULARY
from elmore.checkpoint.hash import hash_json, hash_weights, hash_words
from elmore.errors import InputError, as_input_error
from elmore.schema import from_mapping, read_json
from elmore.text.characters import NUM_CHARACTERS
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary


class Rule(NamedTuple):
    """Maps the HDF5 dataset `theirs` to the parameters `ours`, and back."""

    theirs: str
    ours: tuple[str, ...]
    read: Callable[[Tensor], tuple[Tensor, ...]]
    write: Callable[..., Tensor]


def same(theirs: str, ours: str) -> Rule:
    """Map a dataset to a parameter without a change."""
    return Rule(theirs, (ours,), lambda x: (x,), lambda x: x)


def transposed(theirs: str, ours: str) -> Rule:
    """Map a matrix to its transpose: TensorFlow computes x @ W, PyTorch x @ W.T."""
    return Rule(theirs, (ours,), lambda x: (x.T,), lambda x: x.T)


def convolution(theirs: str, ours: str) -> Rule:
    """Map a convolution: (1, width, in, out) <-> (out, in, width)."""
    return Rule(
        theirs, (ours,), lambda x: (x[0].permute(2, 1, 0),), lambda x: x.permute(2, 1, 0)[None]
    )


def table(theirs: str, ours: str) -> Rule:
    """Map an embedding table. Ours has a row for the padding id 0; theirs starts at id 1."""
    return Rule(
        theirs, (ours,), lambda x: (torch.cat([torch.zeros_like(x[:1]), x]),), lambda x: x[1:]
    )


def gates(theirs: str, ours: str, in_dim: int) -> Rule:
    """Map one matrix (in + out, 4H), gates i g f o, to input and recurrent ones, gates i f g o."""
    return Rule(
        theirs,
        (f"{ours}.input.weight", f"{ours}.recurrent.weight"),
        lambda x: (swap_gates(x[:in_dim].T), swap_gates(x[in_dim:].T)),
        lambda i, r: torch.cat([swap_gates(i).T, swap_gates(r).T]),
    )


def gate_bias(theirs: str, ours: str) -> Rule:
    """Map the bias of the gates. TensorFlow adds 1 to the forget gate at run time; ours has it."""

    def add_to_forget_gate(x: Tensor, value: int) -> Tensor:
        i, f, g, o = x.chunk(4)
        return torch.cat([i, f + value, g, o])

    return Rule(
        theirs,
        (f"{ours}.input.bias",),
        lambda x: (add_to_forget_gate(swap_gates(x), 1),),
        lambda x: swap_gates(add_to_forget_gate(x, -1)),
    )


def swap_gates(x: Tensor) -> Tensor:
    """Reorder gates along the first axis: [i g f o] <-> [i f g o]."""
    i, second, third, o = x.chunk(4)
    return torch.cat([i, third, second, o])


def rules(config: BiLMConfig, cell: str) -> Iterator[Rule]:
    """Yield one rule per dataset; `cell` is the HDF5 path of a layer, as a format string."""
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
"""HDF5 path of the cell in a one-layer model written by bilm-tf, which cannot read it itself."""
OPTIONS = "options.json"
_DROPOUT = 0.1  # if options do not have it, as those for inference do not
_MAX_COMPRESSION = 100
HASH = "elmore_weights_hash"
"""HDF5 attribute of weights that elmore has written: the result of `hash_weights`."""
OPTIONS_HASH = "elmore_options_hash"
"""Key of an options.json that elmore has written: the hash of its other keys."""
_TEXT, _VOCABULARY_HASH = "elmore_text", "elmore_vocabulary_hash"


def read_hdf5(weights: Path, options: Path) -> BiLM:
    """Load a biLM from HDF5 weights and their options.json.

    Raises:
        InputError: If a file is missing or damaged, or the two do not match.
    """
    if options.is_file() and h5py.is_hdf5(options):
        raise InputError(
            f"{options} is an HDF5 file; expected ELMo's options.json. Are options and weights "
            "swapped?"
        )
    settings = read_json(options, "ELMo's options.json")
    if not weights.is_file():  # reading a named pipe would wait for a writer
        problem = "is a folder" if weights.is_dir() else "no such file"
        raise InputError(f"{weights}: {problem}; expected HDF5 weights")
    damages = (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError)
    message = f"{weights} is not a readable HDF5 file. Was it downloaded completely?"
    with as_input_error(message, *damages), h5py.File(weights) as file:
        return _read_bilm(file, settings, options)


def _read_bilm(file: h5py.File, settings: Mapping[str, Any], options: Path) -> BiLM:
    def find_link(name: bytes, link: Any) -> bytes | None:
        return None if link.type == h5py.h5l.TYPE_HARD else name

    if link := file.id.links.visit(find_link, info=True):  # it may lead to another file
        raise InputError(f"{file.filename}: {link.decode()} is a link; expected ELMo weights")
    if "RNN_0" not in file:
        raise InputError(f"{file.filename} has no group 'RNN_0'; expected ELMo weights")
    cell = CELL if "RNN_0/RNN/MultiRNNCell" in file else ONLY_CELL
    config = config_from_options(settings, options, file, cell)
    if settings.get(OPTIONS_HASH) not in (None, _hash_options(settings)):
        raise InputError(
            f"{options} is damaged: its settings differ from those that elmore wrote. Copy or "
            f"convert the model again. If you changed them yourself, delete {OPTIONS_HASH}."
        )
    mapping = list(rules(config, cell))
    missing = [rule.theirs for rule in mapping if rule.theirs not in file]
    if missing:
        raise InputError(
            f"{file.filename} lacks {len(missing)} of the {len(mapping)} weights that {options} "
            f"requires, such as {missing[0]!r}. Do the two files belong together?"
        )
    for extra in (
        f"RNN_0/RNN/{CELL.format(config.num_layers)}",
        f"CNN_high_{config.num_highways}",
    ):
        if extra in file:
            raise InputError(
                f"{file.filename} has {extra!r}, but {options} describes {config.num_layers} LSTM "
                f"and {config.num_highways} highway layers. Do the two files belong together?"
            )
    return build(
        partial(BiLM, config),
        _read_weights(file, mapping, config),
        file.filename,
        file.attrs.get(HASH),
    )


def _read_weights(
    file: h5py.File, mapping: Sequence[Rule], config: BiLMConfig
) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and values of a state dict, one dataset at a time."""
    with on_meta_device():
        expected = BiLM(config).state_dict()
    for rule in mapping:
        dataset = file[rule.theirs]
        shape = tuple(rule.write(*(expected[name] for name in rule.ours)).shape)
        has_padding = rule.theirs == "char_embed" and len(dataset) == NUM_CHARACTERS
        if dataset.shape != ((NUM_CHARACTERS, *shape[1:]) if has_padding else shape):
            raise InputError(
                f"{file.filename}: {rule.theirs} has shape {dataset.shape}; its options file "
                f"requires {shape}. Do the two files belong together?"
            )
        elsewhere = dataset.external or dataset.is_virtual  # in other files
        never_written = dataset.nbytes > _MAX_COMPRESSION * dataset.id.get_storage_size()
        if dataset.dtype.kind != "f" or elsewhere or never_written:
            raise InputError(
                f"{file.filename}: {rule.theirs} is not stored here as floating-point numbers; "
                "expected ELMo weights"
            )
        value = torch.from_numpy(dataset[...].astype(np.float32, copy=False))
        if has_padding:
            if value[0].any():
                raise InputError(f"{file.filename}: expected a row of 0 for padding in char_embed")
            value = value[1:]
        yield from zip(rule.ours, rule.read(value), strict=True)


def config_from_options(
    options: Mapping[str, Any], path: Path, file: Mapping[str, Any], cell: str
) -> BiLMConfig:
    """Convert options.json to a configuration; unknown keys are ignored.

    Whether the model has projections is not in the options, so it is read from the weights.

    Raises:
        InputError: If these are not the options of a bidirectional ELMo model.
    """
    if not isinstance(options.get("lstm"), dict):
        raise InputError(f"{path} has no section 'lstm'; expected ELMo's options.json")
    if options.get("bidirectional") is False:
        raise InputError(f"{path} describes a forward language model; expected a bidirectional one")
    lstm, cnn = options["lstm"], options.get("char_cnn")
    token_encoder: dict[str, Any]
    try:
        if cnn is not None and ("char_embed" in file or "embedding" not in file):
            token_encoder = {
                "max_characters": int(cnn.get("max_characters_per_token", 50)),
                "char_dim": int(cnn["embedding"]["dim"]),
                "filters": tuple((int(width), int(count)) for width, count in cnn["filters"]),
                "activation": cnn.get("activation", "relu"),
                "num_highways": int(cnn.get("n_highway") or 0),
                "project_filters": "CNN_proj/W_proj" in file,
            }
        elif "embedding" in file:
            token_encoder = {"vocab_size": len(file["embedding"])}
        else:
            raise InputError(
                "no section 'char_cnn', as in a word-input model, but the weights have no dataset "
                "'embedding'. Do the two files belong together?"
            )
        return BiLMConfig(
            **token_encoder,
            dim=int(lstm["projection_dim"]),
            cell_dim=int(lstm["dim"]),
            project_cells=f"RNN_0/RNN/{cell.format(0)}/W_P_0" in file,
            num_layers=int(lstm.get("n_layers", 1)),
            # False is the default of the released training code.
            residual=bool(lstm.get("use_skip_connections", False)),
            # Both 0 and null disable clipping in the released code.
            cell_clip=float(lstm.get("cell_clip") or 0) or None,
            projection_clip=float(lstm.get("proj_clip") or 0) or None,
            dropout=float(options.get("dropout", _DROPOUT)),
        )
    except KeyError as error:
        raise InputError(f"{path}: the key {error} is missing; expected ELMo options") from error
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def read_hdf5_text(options: Path) -> tuple[Tokenization | None, str | None]:
    """Read how the training text was tokenized, and the hash of the vocabulary, if it has one.

    Both are None for options.json of other programs.
    """
    settings = read_json(options, "ELMo's options.json")
    text = settings.get(_TEXT)
    tokenization = text and from_mapping(Tokenization, text, f"{options}: {_TEXT}")
    return tokenization, settings.get(_VOCABULARY_HASH)


def _hash_options(options: Mapping[str, Any]) -> str:
    return hash_json({key: value for key, value in options.items() if key != OPTIONS_HASH})


def write_hdf5(
    bilm: BiLM,
    weights: Path,
    options: Path,
    tokenization: Tokenization | None = None,
    vocabulary: Vocabulary | None = None,
) -> None:
    """Write HDF5 weights and options.json that AllenNLP and bilm-tf can read.

    `tokenization` is that of the training text. It is a key of options.json that only elmore reads.
    `vocabulary`, that of a word-input model, is written to vocab.txt next to the weights.
    """
    config, state = _with_all_projections(bilm)
    read_back: dict[str, Tensor] = {}
    settings = options_from_config(bilm.config)
    if tokenization is not None:
        settings[_TEXT] = asdict(tokenization)
    if vocabulary is not None:
        settings[_VOCABULARY_HASH] = hash_words(vocabulary)
    settings[OPTIONS_HASH] = _hash_options(settings)
    text = json.dumps(settings, indent=2) + "\n"
    # Renamed together at the end, so that a failure leaves the previous files.
    with ExitStack() as files:
        if vocabulary is not None:
            vocabulary.write(files.enter_context(atomic_file(weights.with_name(VOCABULARY))))
        files.enter_context(atomic_file(options)).write_text(text, encoding="utf-8")
        temporary = files.enter_context(atomic_file(weights))
        # Built in memory, because the HDF5 library crashes if the disk becomes full.
        with h5py.File("weights", "w", driver="core", backing_store=False) as file:
            for rule in rules(config, CELL):
                value = rule.write(*(state[name] for name in rule.ours))
                file[rule.theirs] = value.numpy()
                read_back.update(zip(rule.ours, rule.read(value), strict=True))
            file.attrs[HASH] = hash_weights(read_back)  # the biases may be rounded
            file.flush()
            temporary.write_bytes(file.id.get_file_image())


def round_for_hdf5(bilm: BiLM) -> None:
    """Round the weights in place, so that HDF5 files preserve them bit for bit.

    Only biases of forget gates change, by the rounding error of subtracting 1 and adding it again.
    """
    state = bilm.state_dict()
    for rule in rules(bilm.config, CELL):
        value = rule.write(*(state[name] for name in rule.ours))
        state.update(zip(rule.ours, rule.read(value), strict=True))
    bilm.load_state_dict(state)


def written_by_elmore(path: Path) -> bool:
    """Return whether `write_hdf5` has written a file: weights, options.json or a vocabulary.

    A vocabulary has to be that of the options.json next to it.
    """
    if not path.is_file():  # reading a named pipe would wait for a writer
        return False
    try:
        if path.name == VOCABULARY:
            expected = read_hdf5_text(path.with_name(OPTIONS))[1]
            return expected == hash_words(Vocabulary.read(path))
        if path.name == OPTIONS:
            return OPTIONS_HASH in read_json(path, "ELMo's options.json")
        with h5py.File(path) as file:
            return HASH in file.attrs
    except (InputError, OSError, RuntimeError):
        return False


def _with_all_projections(bilm: BiLM) -> tuple[BiLMConfig, dict[str, Tensor]]:
    """Replace projections that the model lacks by identities, because AllenNLP requires them."""
    config = bilm.config
    state = {name: value.detach().float().cpu() for name, value in bilm.state_dict().items()}
    if config.vocab_size is None and not config.project_filters:
        state["encode.project.weight"] = torch.eye(config.dim)
        state["encode.project.bias"] = torch.zeros(config.dim)
    if not config.project_cells:
        for lstms, n in product(("forward_lstms", "backward_lstms"), range(config.num_layers)):
            state[f"{lstms}.{n}.project.weight"] = torch.eye(config.dim)
    return replace(config, project_filters=True, project_cells=True), state


def options_from_config(config: BiLMConfig) -> dict[str, Any]:
    """Convert a configuration to released options, as used for inference."""
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
    if config.dropout != _DROPOUT:
        options["dropout"] = config.dropout
    return options
