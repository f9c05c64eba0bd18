"""Checkpoints of a run: named tensors and a few facts in one file, without pickle.

A checkpoint is complete once it has its name, and its sum tells if a byte has changed since.
The newest sound one counts; the one before it is kept for the day it is not.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from elmore.atomic import atomic_file
from elmore.errors import InputError

KEPT = 2


class Checkpoint(NamedTuple):
    """All that a run needs to go on."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """Return the tensors `name.*`, without that prefix."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


class DamagedCheckpointError(ValueError):
    """A file that is not what was written."""


def write_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, and remove all but the last ones."""
    path = folder / f"step-{step:09}.safetensors"
    tensors = {name: x.detach().cpu().contiguous() for name, x in checkpoint.tensors.items()}
    facts = json.dumps(checkpoint.facts)
    metadata = {"facts": facts, "sum": str(_sum(tensors, facts))}
    with atomic_file(path) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:
            raise OSError(f"cannot write {path}: {error}") from error
    for old in checkpoint_files(folder)[:-KEPT]:
        old.unlink()
    return path


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, the oldest first."""
    return sorted(folder.glob("step-*.safetensors"))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint whole, or raise `DamagedCheckpointError`."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        facts, expected = json.loads(metadata["facts"]), metadata["sum"]
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise DamagedCheckpointError(f"{path} is not a checkpoint ({error})") from error
    if expected != str(_sum(tensors, metadata["facts"])):
        raise DamagedCheckpointError(f"{path} has changed since it was written: the sum is wrong")
    return Checkpoint(tensors, facts)


def _sum(tensors: Mapping[str, Tensor], facts: str) -> int:
    total = zlib.crc32(facts.encode())
    for name in sorted(tensors):
        about = f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}"
        total = zlib.crc32(about.encode(), total)
        total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, total)
    return total


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's moments as named tensors: `parameter.moment`."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, moments in optimizer.state_dict()["state"].items()
        for name, value in moments.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer its moments back; its settings stay those it was made with."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".")
        state.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Load a module's weights strictly."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise InputError(f"{path} belongs to another model: {error}") from error
