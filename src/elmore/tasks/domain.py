"""The biLM of a task's domain (section 3.4, last paragraph).

The language model goes on learning on the task's text, without its labels, before the task is
trained.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from elmore.checkpoint.directory import CONFIG
from elmore.checkpoint.pretrained import find_model
from elmore.errors import InputError
from elmore.pretrain.finetune import TRAINING, finetune, read_finetune_config
from elmore.pretrain.folder import SETTINGS
from elmore.tasks.config import TaskConfig
from elmore.tasks.task import Task

FOLDER = "bilm"
_FEWEST = 2 * TRAINING.streams
"""Sentences: one for each stream, and some to hold out."""


def domain_text(task: Task[Any, Any, Any], files: Sequence[Path], config: TaskConfig) -> list[str]:
    """Return the different sentences of a task's training files, a line each.

    As they are read to be answered: for training there may be parts of them too, and those of a
    sentence that is held out would give it away.
    """
    examples = (example for path in files for example in task.read(path, config))
    sentences = (words for example in examples for words in task.texts(example) if words)
    text = list(dict.fromkeys(map(" ".join, sentences)))
    if len(text) < _FEWEST:
        raise InputError(
            f"{len(text)} different sentences are too few to fine-tune the biLM on; expected at "
            f"least {_FEWEST}. Leave out --finetune-bilm."
        )
    return text


def finetune_bilm(
    model: str,
    sentences: Sequence[str],
    run: Path,
    *,
    max_minutes: float | None,
    device: str,
    report: Callable[[dict[str, Any]], None],
) -> Path:
    """Fine-tune a biLM on a task's sentences; return its folder inside that of the run."""
    output = run / FOLDER
    if (output / CONFIG).exists():  # by this run, before it was interrupted
        return output
    config = read_finetune_config(["text.tokenizer=whitespace", "text.sentences=lines"])
    with tempfile.TemporaryDirectory(prefix="elmore-") as scratch:
        text = Path(scratch) / "sentences.txt"
        text.write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
        found = finetune(
            find_model(model),
            [text],
            output,
            config,
            resume=(output / SETTINGS).exists(),
            overwrite=True,
            max_minutes=max_minutes,
            device=device,
            cache=Path(scratch),
            workers=1,
        )
    before, after = found["before"]["average"], found["heldout"]["average"]
    report({"note": f"perplexity of the task's text {before:.1f} -> {after:.1f}"})
    return output
