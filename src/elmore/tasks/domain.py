"""Fine-tuning of the biLM on the text of a task (section 3.4, last paragraph).

The language model continues training on the task's sentences, without their labels, before the
task itself is trained.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.atomic import temporary_folder
from elmore.checkpoint.pretrained import find_model
from elmore.errors import InputError
from elmore.pretrain.finetune import TRAINING, finetune, read_finetune_config
from elmore.pretrain.run import run_folder
from elmore.tasks.config import TaskConfig
from elmore.tasks.task import Task
from elmore.training.run_folder import Report

FOLDER = "bilm"
_MIN_SENTENCES = 2 * TRAINING.streams
"""One sentence per row of a batch, and some to hold out."""

_STEPS_PER_EPOCH = 1_000
_MAX_STREAMS = 512


def domain_text(task: Task[Any, Any, Any], files: Sequence[Path], config: TaskConfig) -> list[str]:
    """Return the distinct sentences of a task's training files, tokens separated by spaces.

    The files are read as for evaluation: reading for training may add parts of sentences, which
    would leak held-out sentences into the training text.

    Raises:
        InputError: If there are too few sentences to fine-tune on.
    """
    examples = (example for path in files for example in task.read(path, config))
    sentences = (words for example in examples for words in task.texts(example) if words)
    text = list(dict.fromkeys(map(" ".join, sentences)))
    if len(text) < _MIN_SENTENCES:
        raise InputError(
            f"{len(text)} distinct sentences are too few to fine-tune the biLM on; expected at "
            f"least {_MIN_SENTENCES}. Train without elmo.finetune."
        )
    return text


def finetune_bilm(
    model: str,
    sentences: Sequence[str],
    run: Path,
    *,
    max_minutes: float,
    device: str,
    report: Report,
) -> Path:
    """Fine-tune a biLM on a task's sentences; return its folder inside the folder of the run."""
    folder = run_folder(run / FOLDER)
    if folder.complete:  # a resumed run
        return folder.path
    config = read_finetune_config(
        [
            "text.tokenizer=whitespace",
            "text.sentences=lines",
            f"training.streams={batch_rows(sentences)}",
        ]
    )
    with temporary_folder() as scratch:
        text = scratch / "sentences.txt"
        text.write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
        summary = finetune(
            find_model(model),
            [text],
            folder.path,
            config,
            resume=folder.settings.exists(),
            overwrite=True,
            max_minutes=max_minutes,
            device=device,
            cache=scratch,
            workers=1,
        )
    before, after = summary["before"]["average"], summary["heldout"]["average"]
    report({"note": f"perplexity of the task's text {before:.1f} -> {after:.1f}"})
    return folder.path


def batch_rows(sentences: Sequence[str]) -> int:
    """Return the number of rows of a batch, between 16 and 512.

    Small texts need many small steps. Batches grow with the text, so that an epoch of a large one
    has about a thousand steps.
    """
    tokens = sum(len(line.split()) for line in sentences)
    rows = tokens // (TRAINING.window * _STEPS_PER_EPOCH)
    return min(max(rows, TRAINING.streams), _MAX_STREAMS)
