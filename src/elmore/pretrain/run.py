"""Text files in, a model folder out: what `elmore pretrain` does, as a function.

DIR/config.toml metrics.jsonl checkpoints/   see `elmore.training.run_folder`
DIR/summary.json loss.png                    results of the run
DIR/config.json model.safetensors softmax.safetensors vocab.txt   the model
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import elmore
from elmore.atomic import lock
from elmore.checkpoint.directory import CONFIG, SOFTMAX, VOCABULARY, WEIGHTS, write_directory
from elmore.checkpoint.hdf5 import round_for_hdf5
from elmore.device import find_device
from elmore.errors import InputError, require
from elmore.pretrain.config import PretrainConfig
from elmore.pretrain.heldout import read_heldout
from elmore.pretrain.loop import Pretraining
from elmore.pretrain.resume import restore_checkpoint
from elmore.progress import Progress
from elmore.schema import POSITIVE_OR_INF, check, write_json
from elmore.signals import InterruptedRunError, interruption
from elmore.text.corpus import encode_corpus
from elmore.text.tokenize import Tokenization
from elmore.training.plots import plot_pretraining
from elmore.training.processes import join_processes
from elmore.training.run_folder import Report, RunFolder, hardware_name

CACHE = Path.home() / ".cache" / "elmore"
SUMMARY, PLOT = "summary.json", "loss.png"
_FEW_STEPS, _FEW_TOKENS = 500, 2000
"""A run with fewer steps or held-out tokens starts with a note."""


def pretrain(
    files: Sequence[Path],
    output: Path,
    config: PretrainConfig | None = None,
    *,
    heldout: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
    cache: Path | None = None,
    workers: int | None = None,
    report: Report = lambda _: None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a biLM on text, write it to a folder, and return a summary of the run.

    Args:
        files: Text files: raw text, or one tokenized sentence per line (see `config.text`).
        output: Folder for the model and the run.
        config: Settings of the model, the text and the training.
        heldout: Text to measure perplexity on; by default, some sentences of `files` are held out.
        resume: Resume an interrupted run.
        overwrite: Replace an earlier run in `output`.
        max_minutes: Stop after this many minutes; the learning-rate schedule is fitted to it. None
            and infinity mean no limit.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        cache: Folder for encoded text; `~/.cache/elmore` by default.
        workers: Number of processes that tokenize; all cores by default.
        report: Receives metrics and messages while training; see `Report`.
        progress: Shows how many chunks of 1000 lines are encoded: takes an iterable and a
            description, returns an iterable, like `tqdm.tqdm`. None shows nothing.

    Raises:
        InterruptedRunError: If a signal stopped the run. The message says how to continue.
    """
    config = config or PretrainConfig()
    config = replace(config, text=config.text.for_model(None))
    check("max_minutes", max_minutes, POSITIVE_OR_INF, optional=True)
    if config.run.tensorboard:
        require("tensorboard", extra="tensorboard")
    folder = run_folder(output)
    with (
        join_processes(find_device(device)) as processes,
        lock(output) if processes.first else nullcontext(),
        folder.explain_interruption(resume=resume),
    ):
        if processes.first:
            folder.check(resume=resume, overwrite=overwrite, inputs=(*files, heldout))
            check_files(output, cache, heldout)
        else:
            report = _ignore  # one process reports for all
        corpus = processes.rank_zero_first(
            lambda: encode_corpus(
                files, cache or CACHE, config.text, workers=workers, progress=progress
            )
        )
        sentences = read_heldout(heldout, config.text, corpus, report) if heldout else None
        run = Pretraining(
            config, corpus, folder, processes=processes, heldout=sentences, max_minutes=max_minutes
        )
        if processes.first and not resume:
            for note in _notes_on_size(run):
                report({"note": note})
            folder.create(config)
        processes.wait()
        heldout_scores = train(run, report, resume=resume)
        if not processes.first:
            return {}
        return finish(run, files, report, config.text.tokenization, heldout=heldout_scores)


def check_files(output: Path, cache: Path | None, heldout: Path | None) -> None:
    """Raise an error, before the text is encoded, if held-out text or the cache cannot be used."""
    if heldout is not None:
        heldout.stat()  # raises if it does not exist
    if cache is not None and cache.resolve().is_relative_to(output.resolve()):
        raise InputError(f"the cache {cache} is inside {output}, which a new run replaces")


def run_folder(path: Path) -> RunFolder:
    """Return the folder of a run, which ends by writing the model's config.json."""
    results = (SUMMARY, PLOT, WEIGHTS, SOFTMAX, VOCABULARY, "events.out.tfevents.*")
    return RunFolder(path, CONFIG, results)


def _notes_on_size(run: Pretraining) -> Iterator[str]:
    """Yield notes on a run that is too small."""
    config, corpus = run.config, run.corpus
    tokens = sum(map(len, run.heldout))
    if config.run.heldout and not run.heldout:
        yield (
            f"no sentences are held out, so perplexity is not measured: the text has "
            f"{corpus.num_sentences} sentences, of which run.heldout={config.run.heldout} is "
            "less than one. Raise run.heldout, or provide held-out text."
        )
    elif run.heldout and tokens < _FEW_TOKENS:
        yield (
            f"only {tokens:,} tokens are held out, so perplexity is imprecise. Raise run.heldout, "
            "or provide held-out text."
        )
    if run.total_steps < _FEW_STEPS:
        yield (
            f"the run has only {run.total_steps:,} steps, too few to learn much. For little text, "
            f"lower training.streams (now {config.training.streams}) or raise training.epochs "
            f"(now {config.training.epochs:g})."
        )


def train(run: Pretraining, report: Report, *, resume: bool) -> dict[str, float] | None:
    """Train until the run is complete; return the perplexity of all held-out sentences, if any.

    Raises:
        InterruptedRunError: If a signal stopped the run, after it wrote a checkpoint.
    """
    if resume:
        restore_checkpoint(run, report)
    use_tensorboard = run.config.run.tensorboard and run.processes.first
    write = _tensorboard(run.folder.path, run.step) if use_tensorboard else _ignore
    record: dict[str, Any] = {}
    with interruption() as interrupted:
        for record in run.run(interrupted):
            if run.processes.first:
                run.folder.append_metrics(record)
            report(record)
            write(record)
    if not run.complete:
        raise InterruptedRunError(f"interrupted at step {run.step}; resume the run to continue")
    return record["heldout"]


def finish(
    run: Pretraining,
    files: Sequence[Path],
    report: Report,
    tokenization: Tokenization | None,
    **details: object,
) -> dict[str, Any]:
    """Write the summary, with `details`, the plot and the model; return the summary."""
    folder = run.folder
    tokens = run.step * run.tokens_per_step
    summary = {
        "steps": run.step,
        "tokens": tokens,
        "seconds": run.seconds,
        "tokens_per_second": tokens / run.seconds,
        "parameters": sum(p.numel() for p in run.model.bilm.parameters()),
        "vocabulary": len(run.vocabulary),
        "text": [path.name for path in files],
        "text_words": run.corpus.num_words,
        "hardware": f"{run.processes.count} x {hardware_name(run.processes.device)}",
        "elmore": elmore.__version__,
        "torch": torch.__version__,
        **details,
    }
    write_json(folder.path / SUMMARY, summary)
    try:
        plot_pretraining(folder.read_metrics("step"), folder.path / PLOT)
    except Exception as error:  # whatever matplotlib raises, the model is worth more
        report({"note": f"no plot of the loss: {error}"})
    round_for_hdf5(run.model.bilm)  # so that a converted copy has the same hash
    write_directory(
        run.model.bilm,
        folder.path,
        softmax=run.model.softmax,
        vocabulary=run.vocabulary,
        provenance=summary,
        tokenization=tokenization,
    )
    folder.finish()
    return summary


def _tensorboard(folder: Path, step: int) -> Report:
    """Return a function that writes metrics for TensorBoard, from the one after `step` on."""
    from torch.utils.tensorboard import SummaryWriter

    # A run that was killed has written events of steps that the resumed run repeats.
    writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(record: dict[str, Any]) -> None:
        perplexity = {f"heldout/{k}": v for k, v in (record.get("heldout") or {}).items()}
        for name, value in (record | perplexity).items():
            if isinstance(value, float):
                writer.add_scalar(name, value, record["step"])
        writer.flush()

    return write


def _ignore(_: dict[str, Any]) -> None:
    """Discard a report."""
