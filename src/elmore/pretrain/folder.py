"""The folder of a run: made, found again, completed."""

import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import elmore
from elmore.atomic import atomic_file, drop_previous, make_way, refuse_existing
from elmore.checkpoint.directory import CONFIG, write_files
from elmore.errors import InputError, MissingExtraError, require
from elmore.pretrain.config import PretrainConfig, read_config
from elmore.pretrain.heldout import Report
from elmore.pretrain.loop import Pretraining
from elmore.training.checkpoints import (
    DamagedCheckpointError,
    checkpoint_files,
    read_checkpoint,
)
from elmore.training.interruption import InterruptedRunError, interruption
from elmore.training.plots import plot_losses
from elmore.training.processes import Processes
from elmore.training.settings import write_settings
from elmore.training.tensorboard import TensorBoard

SETTINGS = "config.toml"


def check_folder(folder: Path, config: PretrainConfig, *, resume: bool, overwrite: bool) -> None:
    """See that a run can be written there, or go on there, before any work is done."""
    settings = folder / SETTINGS
    if config.run.tensorboard:
        require("tensorboard", extra="tensorboard")
    if resume:
        if (folder / CONFIG).exists():
            raise InputError(f"the run in {folder} is complete; there is nothing to resume")
        if not settings.exists():
            raise InputError(f"{folder} holds no run to resume; leave out --resume to start one")
        return
    refuse_existing(folder, overwrite=overwrite)
    if folder.is_file() or (folder.exists() and any(folder.iterdir()) and not settings.exists()):
        raise InputError(f"{folder} is not a run of elmore, so it is not replaced")


def make_folder(folder: Path, config: PretrainConfig) -> None:
    """Make the folder of a new run. A complete one in its place is kept until this is, too."""
    make_way(folder, CONFIG)
    folder.mkdir(parents=True)
    write_settings(config, folder / SETTINGS)


def restore(run: Pretraining, report: Report) -> None:
    """Go on from the newest checkpoint that is sound and belongs to this run."""
    began_with = read_config(run.folder / SETTINGS)
    if replace(began_with, run=run.config.run) != run.config:
        raise InputError(
            f"the run in {run.folder} began with other settings; see its config.toml, or pass it "
            "as --recipe"
        )
    refused = []
    for path in reversed(checkpoint_files(run.folder / "checkpoints")):
        try:
            run.restore(read_checkpoint(path), path)
        except (DamagedCheckpointError, InputError) as error:
            refused.append(str(error))
            report({"note": f"{error}; trying the one before it"})
            if isinstance(error, DamagedCheckpointError) and run.processes.first:
                path.rename(path.with_suffix(".damaged"))
        else:
            report({"note": f"goes on from step {run.step:,}"})
            return
    if refused:
        raise InputError(f"no checkpoint can be used. {refused[0]}")
    run.forget_metrics_after(0)
    report({"note": "no checkpoint yet: starts from the beginning"})


def train(run: Pretraining, report: Report, *, resume: bool) -> None:
    """Train to the end, from the newest checkpoint if asked; a signal ends it with one more."""
    if resume:
        restore(run, report)
    curves = run.config.run.tensorboard and run.processes.first
    write = TensorBoard(run.folder) if curves else lambda _: None
    with interruption() as interrupted:
        for record in run.run(interrupted):
            report(record)
            write(record)
    if not run.complete:
        raise InterruptedRunError(f"stopped at step {run.step}; --resume goes on from there")


def finish(
    run: Pretraining, files: Sequence[Path], report: Report, **facts: object
) -> dict[str, Any]:
    """Write the model, the picture and the summary; the checkpoints have served."""
    lines = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    summary = {
        "heldout": records[-1]["heldout"],
        "steps": run.step,
        "tokens": run.step * run.tokens_per_step,
        "seconds": run.seconds,
        "tokens_per_second": run.step * run.tokens_per_step / run.seconds,
        "parameters": sum(p.numel() for p in run.model.bilm.parameters()),
        "vocabulary": len(run.vocabulary),
        "text": [path.name for path in files],
        "text_words": run.corpus.facts["words"],
        "hardware": _hardware(run.processes),
        "elmore": elmore.__version__,
        "torch": torch.__version__,
        **facts,
    }
    with atomic_file(run.folder / "summary.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    try:
        plot_losses(records, run.folder / "loss.png")
    except MissingExtraError as error:
        report({"note": f"no picture of the loss: {error}"})
    write_files(
        run.model.bilm,
        run.folder,
        softmax=run.model.softmax,
        vocabulary=run.vocabulary,
        provenance=summary,
    )
    shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
    drop_previous(run.folder)
    return summary


def _hardware(processes: Processes) -> str:
    if processes.device.type == "cuda":
        name = torch.cuda.get_device_name(processes.device)
    else:
        name = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    return f"{processes.count} x {name}"
