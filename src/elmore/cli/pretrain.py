"""`elmore pretrain`: train a biLM on text files."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from cyclopts import Parameter

from elmore.cli.options import (
    Changes,
    Json,
    Language,
    Output,
    Overwrite,
    ReplaceInvalid,
    Resume,
    Tokenizer,
)
from elmore.cli.show import show


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that `pretrain` and `finetune` share."""

    changes: Changes = ()
    """Change a setting, as in training.lr=1e-3; may be given several times."""

    tokenizer: Tokenizer = None

    language: Language = None

    replace_invalid: ReplaceInvalid = False

    heldout: Path | None = None
    """Text to measure perplexity on; by default, some sentences of the files are held out."""

    max_minutes: float | None = None
    """Stop after this many minutes; the learning-rate schedule is fitted to it."""

    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:NUMBER."""

    cache: Path | None = None
    """Folder for encoded text; ~/.cache/elmore by default."""

    workers: int | None = None
    """Number of processes that tokenize; all cores by default."""

    resume: Resume = False

    overwrite: Overwrite = False

    json_output: Json = False

    @property
    def all_changes(self) -> tuple[str, ...]:
        """Changes of settings, including those that have their own option."""
        options = {
            "tokenizer": self.tokenizer,
            "language": self.language,
            "replace_invalid": "true" if self.replace_invalid else None,
        }
        given = (f"text.{name}={value}" for name, value in options.items() if value)
        return (*self.changes, *given)

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of the functions that do the work."""
        from elmore.progress import with_progress

        same = ("heldout", "max_minutes", "device", "cache", "workers", "resume", "overwrite")
        return {
            **{name: getattr(self, name) for name in same},
            "report": (lambda _: None) if self.json_output else show_record,
            "progress": with_progress,
        }


DEFAULT_OPTIONS = RunOptions()


def pretrain(
    *files: Path,
    output: Output,
    size: Literal["tiny", "small", "medium", "original"] | None = None,
    recipe: Path | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> None:
    """Train a biLM on your own text.

    Example: `elmore pretrain corpus/*.txt -o runs/mine --size medium --max-minutes 60`

    Args:
        files: Text files: .txt, .gz, .xz, .bz2, .zst; raw text, or tokenized text with --tokenizer
            whitespace.
        output: Folder for the model and the run.
        size: Size of the model; medium by default, unless a recipe sets it.
        recipe: TOML file with settings; the config.toml of a run repeats that run.
    """
    from elmore.pretrain.config import read_config
    from elmore.pretrain.run import pretrain as run

    config = read_config(recipe, size=size, changes=options.all_changes)
    summary = run(expand(files), output, config, **options.keywords())
    if not summary:  # only the first process returns one
        return
    text = (
        f"{summary['tokens']:,} tokens in {summary['seconds']:.0f} s "
        f"({summary['tokens_per_second']:,.0f} tokens/s) -> {output}"
    )
    if heldout := summary["heldout"]:
        unknown = f"{heldout['unknown']:.1%} unknown words"
        text = f"held-out perplexity {heldout['average']:.2f} with {unknown}, {text}"
    show(summary, text, as_json=options.json_output)


def expand(files: tuple[Path, ...]) -> list[Path]:
    """Expand wildcards that the shell has not expanded, as on Windows."""
    from glob import glob

    from elmore.errors import InputError

    if not files:
        raise InputError("expected text files, such as corpus/*.txt")
    paths: list[Path] = []
    for file in files:
        # Not Path.glob, which rejects absolute patterns.
        found = sorted(glob(str(file), recursive=True))  # noqa: PTH207
        matches = [str(file)] if file.exists() else found
        if not matches:
            raise InputError(f"{file}: no such file")
        paths += map(Path, matches)
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name its files, as in {path}/*.txt")
    return paths


def show_record(record: dict[str, Any]) -> None:
    """Print one line of metrics, or a message."""
    heldout = record.get("heldout")
    if "note" in record:
        text = record["note"]
    elif "loss" in record:
        left = record["seconds"] * (1 / max(record["progress"], 1e-9) - 1)
        text = (
            f"step {record['step']:,} ({record['progress']:.0%})  "
            f"loss {record['loss']:.3f}  lr {record['lr']:.2g}  "
            f"{record['tokens_per_second']:,.0f} tokens/s  {timedelta(seconds=int(left))} left"
        )
    elif heldout:
        text = (
            f"    held-out perplexity {heldout['average']:.2f} (forward {heldout['forward']:.2f}, "
            f"backward {heldout['backward']:.2f})"
        )
    else:
        return
    with suppress(OSError):  # a terminal or pipe that was closed does not end the training
        print(text, flush=True)
