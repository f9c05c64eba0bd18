"""Read and write the files of the released models: options.json and HDF5 weights.

The format is that of bilm-tf, which AllenNLP also reads.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

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
from elmore.checkpoint.hdf5_rules import CELL, ONLY_CELL, Rule, rules
from elmore.checkpoint.released_options import (
    OPTIONS,
    config_from_options,
    options_from_config,
)
from elmore.errors import InputError, as_input_error
from elmore.schema import from_mapping, read_json
from elmore.text.characters import NUM_CHARACTERS
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary

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
