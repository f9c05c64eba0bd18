"""Checkpoints of a pre-training run: everything that the next step depends on."""

import json
import math
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from elmore.bilm.lstm import LSTMState
from elmore.errors import InputError
from elmore.pretrain.config import read_config
from elmore.training.checkpoints import (
    Checkpoint,
    optimizer_tensors,
    restore_module,
    restore_optimizer,
    write_checkpoint,
)
from elmore.training.run_folder import Report

if TYPE_CHECKING:
    from elmore.pretrain.loop import Pretraining

_NEUTRAL = ("checkpoint_minutes", "log_steps", "tensorboard")
"""Settings in `RunConfig` that do not affect the weights, so a resumed run may change them."""


def save_checkpoint(run: "Pretraining") -> None:
    """Write a checkpoint."""
    state = {
        f"{i}.{name}": run.processes.gather(tensor)
        for i, layer in enumerate(run.state)
        for name, tensor in layer._asdict().items()
    }
    if not run.processes.first:
        return
    parts = {
        "model": run.model.state_dict(),
        "best": run.best_weights,
        "optimizer": optimizer_tensors(run.optimizer),
        "sums": {"values": run.sums.values, "steps": torch.tensor(run.sums.steps)},
        "lstm": state,
        "windows": {"state": torch.from_numpy(run.windows_state)},
    }
    metadata = {
        "run": _identity(run),
        "step": run.step,
        "seconds": run.seconds,
        "best": run.best,
        "bad_evaluations": run.bad_evaluations,
        "max_seconds": run.max_seconds if math.isfinite(run.max_seconds) else None,
    }
    tensors = {f"{part}.{k}": v for part, named in parts.items() for k, v in named.items()}
    write_checkpoint(run.folder.checkpoints, run.step, Checkpoint(tensors, metadata))


def restore_checkpoint(run: "Pretraining", report: Report) -> None:
    """Load the newest intact checkpoint; without any, the run starts from the first step.

    Raises:
        InputError: If the run was started with other settings or other text.
    """
    saved = read_config(run.folder.settings)
    of_run = {name: getattr(run.config.run, name) for name in _NEUTRAL}
    run.folder.require_settings(replace(saved, run=replace(saved.run, **of_run)), run.config)
    newest = run.folder.newest_checkpoint(report)
    if newest:
        _load(run, *newest)
        before = newest[1].metadata.get("max_seconds") or math.inf
        if before != run.max_seconds:
            report({"note": "the time limit has changed, and with it the learning-rate schedule"})
    if run.processes.first:
        run.folder.drop_metrics_after("step", run.step)
    from_start = "no checkpoint yet: starting from the beginning"
    report({"note": f"resuming from step {run.step:,}" if newest else from_start})


def _load(run: "Pretraining", path: Path, checkpoint: Checkpoint) -> None:
    metadata = checkpoint.metadata
    current, saved = _identity(run), metadata.get("run", {})
    for name in current:
        if current[name] != saved.get(name):
            raise InputError(
                f"{path} belongs to another run: its {name} was {saved.get(name)!r:.80}, "
                f"here it is {current[name]!r:.80}"
            )
    device = run.processes.device
    restore_module(run.model, checkpoint.part("model"), path)
    restore_optimizer(run.optimizer, checkpoint.part("optimizer"))
    state = {k: v[run.rows].to(device) for k, v in checkpoint.part("lstm").items()}
    run.state = [LSTMState(state[f"{i}.output"], state[f"{i}.cell"]) for i in range(len(run.state))]
    sums = checkpoint.part("sums")
    run.sums.values, run.sums.steps = sums["values"].to(device), int(sums["steps"])
    run.windows_state = checkpoint.tensors["windows.state"].numpy()
    run.step, run.seconds = metadata["step"], metadata["seconds"]
    run.best, run.bad_evaluations = metadata["best"], metadata["bad_evaluations"]
    run.best_weights = checkpoint.part("best")


def _identity(run: "Pretraining") -> dict[str, Any]:
    """Return everything the weights depend on; a checkpoint is refused if it differs."""
    return {
        **json.loads(json.dumps(asdict(run.config))),
        "run": {"patience": run.config.run.patience},  # `require_settings` compares the others
        "start": run.start_hash,
        "corpus": run.corpus.folder.name,
        "sentences": zlib.crc32(run.sentences.data),
        "heldout": zlib.crc32(json.dumps([list(words) for words in run.heldout]).encode()),
    }
