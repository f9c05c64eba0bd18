"""Text files in, a model folder out: all that `elmore pretrain` does, for Python."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from elmore.embedder import find_device
from elmore.pretrain.config import PretrainConfig
from elmore.pretrain.folder import check_folder, finish, make_folder, train
from elmore.pretrain.heldout import Report, read_heldout
from elmore.pretrain.loop import Pretraining
from elmore.text.corpus import Encoded, encode_corpus
from elmore.training.processes import join_processes
from elmore.training.settings import check_minutes

CACHE = Path.home() / ".cache" / "elmore"

Watch = Callable[[Iterator[Encoded]], Iterator[Encoded]]
"""Wraps the stream of encoded text, to show how far it is."""


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
    watch: Watch = iter,
) -> dict[str, Any]:
    """Train a biLM on text, write it to a folder, and return a summary of the run.

    Args:
        files: Text files: raw, or one tokenized sentence a line (see `config.text`).
        output: Folder for the model and the run.
        config: The model, the text, the training.
        heldout: Text to measure perplexity on; some sentences of `files` if not given.
        resume: Go on with an interrupted run.
        overwrite: Replace what is in `output`.
        max_minutes: End the training after so long, with its schedule finished.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        cache: Folder of encoded corpora; `~/.cache/elmore` if not given.
        workers: Processes that tokenize.
        report: See `Report`.
        watch: See `Watch`.
    """
    config = config or PretrainConfig()
    check_minutes(max_minutes)
    with join_processes(find_device(device)) as processes:
        if processes.first:
            check_folder(output, config, resume=resume, overwrite=overwrite)
        else:
            report = _silence
        corpus = processes.first_does(
            lambda: encode_corpus(files, cache or CACHE, config.text, workers=workers, watch=watch)
        )
        sentences = read_heldout(heldout, config.text, corpus, report) if heldout else None
        run = Pretraining(
            config, corpus, output, processes=processes, heldout=sentences, max_minutes=max_minutes
        )
        if processes.first and not resume:
            make_folder(output, config)
        processes.wait()
        train(run, report, resume=resume)
        return finish(run, files, report) if processes.first else {}


def _silence(_: dict[str, Any]) -> None:
    """Say nothing: one of many processes speaks for all."""
