"""Train an English model with the sources and settings of `models/en-news`, in two phases.

Phase 1 reads all sources at a constant learning rate. Phase 2 reads the sources that are close to
news and to the validation text, while the learning rate decays to zero. A source with weight N is
read N times per epoch.

Run as: python experiments/english_model.py text/en -o OUT --size original --lr 3e-3

`text/en` is the folder built by the commands in docs/models.md. The trained model is written to
OUT/phase2. The time limits exclude encoding the text; to encode it in advance, use `--encode-only`.
The same command resumes an interrupted run.
"""

import argparse
from pathlib import Path
from typing import Any, Literal

from elmore.pretrain.config import read_config
from elmore.pretrain.finetune import finetune, read_finetune_config
from elmore.pretrain.run import pretrain
from elmore.progress import with_progress
from elmore.text.corpus import encode_corpus

Size = Literal["tiny", "small", "medium", "original"]

WEIGHTS = {  # in phase 1 and in phase 2
    "wikinews": (3, 3),
    "wikipedia": (2, 1),
    "press": (2, 1),
    "doj-press": (1, 1),
    "gov-blogs": (1, 1),
    "oanc": (2, 1),
    "gutenberg": (2, 2),
    "un-debates": (3, 2),
    "elife": (4, 3),
    "speeches": (4, 3),
    "wh-briefings": (1, 0),
    "au-pm-speeches": (1, 0),
    "books": (1, 0),
}


def files_of(text: Path, phase: int) -> list[Path]:
    """Return the files of a phase, each as often as it is read per epoch."""
    return [
        text / f"{name}.txt" for name, weights in WEIGHTS.items() for _ in range(weights[phase - 1])
    ]


def train(
    text: Path,
    output: Path,
    *,
    size: Size,
    minutes: tuple[float, float],
    settings: list[str],
    dropout: float,
    **options: Any,
) -> None:
    """Train both phases, or what is left of them, for the given minutes each."""
    options |= {"heldout": text / "heldout-wikinews.txt", "report": print}
    phase1, phase2 = output / "phase1", output / "phase2"
    if not (phase1 / "config.json").exists():
        changes = [
            *settings,
            f"bilm.dropout={dropout}",
            "vocabulary.max_size=100003",
            "training.schedule=constant",
            "run.evaluations=8",
        ]
        config = read_config(size=size, changes=changes)
        resume = phase1.exists()
        files = files_of(text, 1)
        pretrain(files, phase1, config, max_minutes=minutes[0], resume=resume, **options)
    changes = [
        *settings,
        "training.schedule=linear",
        "training.warmup=0.02",
        "run.evaluations=4",
        "run.patience=none",
    ]
    config = read_finetune_config(changes)
    resume = phase2.exists()
    files = files_of(text, 2)
    finetune(phase1, files, phase2, config, max_minutes=minutes[1], resume=resume, **options)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path, help="folder of the sources")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for both phases")
    parser.add_argument("--size", default="medium", choices=["tiny", "small", "medium", "original"])
    parser.add_argument(
        "--minutes", type=float, nargs=2, default=[17.4, 6.07], help="time of phase 1 and phase 2"
    )
    parser.add_argument("--lr", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--rows", type=int, default=2048, help="batch size in rows")
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="folder of encoded text")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--encode-only", action="store_true", help="encode the text, do not train")
    args = parser.parse_args()
    if args.encode_only:
        for phase in (1, 2):
            encode_corpus(files_of(args.text, phase), args.cache, progress=with_progress)
        return
    settings = {"optimizer": "muon", "lr": args.lr, "streams": args.rows, "epochs": 100}
    train(
        args.text,
        args.output,
        size=args.size,
        minutes=(args.minutes[0], args.minutes[1]),
        settings=[f"training.{name}={value}" for name, value in settings.items()],
        dropout=args.dropout,
        cache=args.cache,
        device=args.device,
    )


if __name__ == "__main__":
    main()
