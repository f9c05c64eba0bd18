"""`elmore pretrain`: text files to a biLM."""

import json
from pathlib import Path
from typing import Any, Literal

from elmore.cli.options import Changes, Json, Output, Overwrite, ReplaceInvalid, Resume


def pretrain(
    *files: Path,
    output: Output,
    size: Literal["tiny", "small", "medium", "original"] | None = None,
    recipe: Path | None = None,
    changes: Changes = (),
    replace_invalid: ReplaceInvalid = False,
    heldout: Path | None = None,
    max_minutes: float | None = None,
    device: str = "auto",
    cache: Path | None = None,
    workers: int | None = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Train a biLM on your own text.

    Examples:
        elmore pretrain corpus/*.txt -o runs/mine --size medium

        elmore pretrain news.txt.xz -o runs/news --set training.epochs=3 --max-minutes 30

    Args:
        files: Text: .txt, .gz, .xz, .bz2, .zst; raw, or tokenized with --set
            text.tokenizer=whitespace.
        output: Folder for the model and the run.
        size: Size of the model; medium if neither this nor a recipe says otherwise.
        recipe: TOML file with the settings of a run; a run's own config.toml repeats it.
        changes: A setting on top of that, as in training.lr=1e-3; may be given many times.
        heldout: Text to measure perplexity on; some sentences of the files if not given.
        max_minutes: End the training after so long, with its schedule finished.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
        cache: Folder for encoded text; ~/.cache/elmore if not given.
        workers: Processes that tokenize; all cores if not given.
    """
    from elmore.cli.progress import with_progress
    from elmore.errors import InputError
    from elmore.pretrain.config import read_config
    from elmore.pretrain.run import pretrain as run

    if not files:
        raise InputError("expected text files: elmore pretrain corpus/*.txt -o runs/mine")
    if replace_invalid:
        changes = (*changes, "text.replace_invalid=true")
    config = read_config(recipe, size=size, changes=changes)
    summary = run(
        expand(files),
        output,
        config,
        heldout=heldout,
        resume=resume,
        overwrite=overwrite,
        max_minutes=max_minutes,
        device=device,
        cache=cache,
        workers=workers,
        report=(lambda _: None) if json_output else show_record,
        watch=lambda pieces: with_progress(pieces, "thousand lines encoded"),
    )
    if json_output:
        print(json.dumps(summary))
    elif summary:
        found = summary["heldout"]
        quality = f"held-out perplexity {found['average']:.2f}, " if found else ""
        print(
            f"{quality}{summary['tokens']:,} tokens in {summary['seconds']:.0f} s "
            f"({summary['tokens_per_second']:,.0f} tokens/s) -> {output}"
        )


def expand(files: tuple[Path, ...]) -> list[Path]:
    """Resolve patterns that the shell has left alone, as shells on Windows do."""
    from glob import glob

    from elmore.errors import InputError

    found: list[Path] = []
    for file in files:
        # Not Path.glob, which refuses absolute patterns.
        pattern = glob(str(file), recursive=True)  # noqa: PTH207
        matches = [file] if file.exists() else sorted(map(Path, pattern))
        if not matches:
            raise InputError(f"{file}: no such file")
        found += matches
    for path in found:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name its files, as in {path}/*.txt")
    return found


def show_record(record: dict[str, Any]) -> None:
    """Print a line of metrics for a person."""
    if "note" in record:
        print(record["note"], flush=True)
    elif "loss" in record:
        left = record["seconds"] * (1 / max(record["progress"], 1e-9) - 1)
        print(
            f"step {record['step']:,} of {record['steps']:,} ({record['progress']:.0%})  "
            f"loss {record['loss']:.3f}  lr {record['lr']:.2g}  "
            f"{record['tokens_per_second']:,.0f} tokens/s  {_minutes(left)} left",
            flush=True,
        )
    elif record.get("heldout"):
        found = record["heldout"]
        print(
            f"    held-out perplexity {found['average']:.2f} (forward {found['forward']:.2f}, "
            f"backward {found['backward']:.2f})",
            flush=True,
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
