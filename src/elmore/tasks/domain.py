"""The biLM of a task's domain (section 3.4, last paragraph).

The language model goes on learning on the task's text, without its labels, before the task is
trained.
"""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from elmore.checkpoint.directory import CONFIG
from elmore.checkpoint.pretrained import find_model
from elmore.pretrain.finetune import finetune, read_finetune_config
from elmore.pretrain.folder import SETTINGS
from elmore.text.sentences import Sentence

FOLDER = "bilm"


def finetune_bilm(
    model: str,
    sentences: Iterable[Sentence],
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
    distinct = dict.fromkeys(" ".join(words) for words in sentences if words)
    config = read_finetune_config(["text.tokenizer=whitespace", "text.sentences=lines"])
    with tempfile.TemporaryDirectory(prefix="elmore-") as scratch:
        text = Path(scratch) / "sentences.txt"
        text.write_text("".join(f"{line}\n" for line in distinct), encoding="utf-8")
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
