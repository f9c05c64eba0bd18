"""Checkpoints of a run: named tensors and JSON metadata in a safetensors file, without pickle.

A file has its final name only once it is complete, and a checksum detects later damage. The two
newest checkpoints are kept, so that one is left if the other is damaged.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from elmore.checkpoint.directory import save_tensors
from elmore.checkpoint.hash import hash_json, hash_weights
from elmore.errors import InputError, as_input_error

_MAX_KEPT = 2
_FORMAT = "3"  # increase when the contents of a checkpoint change


class EarlierVersionError(InputError):
    """A checkpoint was written by a version of elmore whose checkpoints had other contents."""


class Checkpoint(NamedTuple):
    """Everything a run needs to resume."""

    tensors: dict[str, Tensor]
    metadata: dict[str, Any]
    """Values that are not tensors, such as the step; they are stored as JSON."""

    def part(self, name: str) -> dict[str, Tensor]:
        """Return the tensors `name.*`, without that prefix."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


def write_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, delete all but the two newest ones, and return its path."""
    path = folder / f"step-{step:09}.safetensors"
    tensors = {name: x.detach().cpu().contiguous() for name, x in checkpoint.tensors.items()}
    metadata = json.dumps(checkpoint.metadata)
    header = {
        "format": _FORMAT,
        "metadata": metadata,
        "checksum": _checksum(tensors, metadata),
    }
    save_tensors(tensors, path, header)
    for old in checkpoint_files(folder)[:-_MAX_KEPT]:
        old.unlink()
    return path


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoint files in a folder, oldest first."""
    return sorted(folder.glob("step-*.safetensors"))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        EarlierVersionError: If an earlier version of elmore has written the file.
        InputError: If the file is incomplete, or its checksum does not match.
    """
    damages = (SafetensorError, KeyError, json.JSONDecodeError, OSError)
    with as_input_error(f"{path} is not a complete checkpoint", *damages):
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            if header.get("format") != _FORMAT:
                raise EarlierVersionError(
                    f"{path} was written by an earlier version of elmore and cannot be resumed. "
                    "Start the run again, or resume it with the version that it was started with."
                )
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        checkpoint = Checkpoint(tensors, json.loads(header["metadata"]))
        intact = header["checksum"] == _checksum(tensors, header["metadata"])
    if not intact:
        raise InputError(f"{path} is damaged: its checksum does not match")
    return checkpoint


def _checksum(tensors: Mapping[str, Tensor], metadata: str) -> str:
    return hash_json([metadata, hash_weights(tensors)])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer as tensors named `parameter_number.state_name`."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of `optimizer_tensors`; hyperparameters stay those of `optimizer`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".")
        state.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Load the weights of a module.

    Raises:
        InputError: If names or shapes do not match; `path` is the file that the message names.
    """
    with as_input_error(f"{path} belongs to another model", RuntimeError):
        module.load_state_dict(dict(tensors))
