"""Train an English model in two phases, fitted to a time limit, as `models/en-news` was trained.

Phase 1 reads all sources at a constant learning rate. Phase 2 reads the sources that are close to
news and to the validation text, while the learning rate decays to zero. A source with weight N is
read N times per epoch.

Run as: python experiments/english_model.py text/en -o OUT --size original --lr 3e-3 --minutes 23

`text/en` is the folder of docs/models.md. OUT/phase2 is the model. Text is encoded first, which
the time limit does not include; `--encode-only` does nothing else. `--minutes` is the time of both
phases together; loading the model between them is included.
"""

import argparse
import time
from pathlib import Path

from elmore.pretrain.config import read_config
from elmore.pretrain.finetune import finetune, read_finetune_config
from elmore.pretrain.run import pretrain
from elmore.progress import with_progress
from elmore.text.corpus import TextConfig, encode_corpus

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
SECONDS_BETWEEN = 12  # to save and load the model


def files_of(text: Path, phase: int) -> list[Path]:
    """Return the files of a phase, each as often as it is read per epoch."""
    return [
        text / f"{name}.txt" for name, weights in WEIGHTS.items() for _ in range(weights[phase - 1])
    ]


def train(
    text: Path,
    output: Path,
    *,
    size: str,
    minutes: float,
    share: float = 0.52,
    settings: list[str],
    dropout: float,
    cache: Path,
    device: str = "auto",
) -> None:
    """Train both phases; the first takes `share` of the time."""
    end = time.monotonic() + 60 * minutes
    vocabulary = ["vocabulary.max_size=100003", f"bilm.dropout={dropout}"]
    evaluations = ["run.evaluations=8", "training.schedule=constant"]
    pretrain(
        files_of(text, 1),
        output / "phase1",
        read_config(size=size, changes=[*settings, *vocabulary, *evaluations]),  # type: ignore[arg-type]
        heldout=text / "heldout-wikinews.txt",
        max_minutes=share * minutes,
        cache=cache,
        device=device,
        report=print,
    )
    schedule = ["training.schedule=linear", "training.warmup=0.02"]
    evaluations = ["run.evaluations=4", "run.patience=none"]
    finetune(
        output / "phase1",
        files_of(text, 2),
        output / "phase2",
        read_finetune_config([*settings, *schedule, *evaluations]),
        heldout=text / "heldout-wikinews.txt",
        max_minutes=max(0.05, (end - time.monotonic() - SECONDS_BETWEEN) / 60),
        cache=cache,
        device=device,
        report=print,
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path, help="folder of the sources")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for both phases")
    parser.add_argument("--size", default="medium", choices=["tiny", "small", "medium", "original"])
    parser.add_argument("--minutes", type=float, default=23.5, help="time of both phases")
    parser.add_argument("--lr", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--rows", type=int, default=2048, help="rows of a batch")
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="folder of encoded text")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--encode-only", action="store_true", help="encode the text, do not train")
    args = parser.parse_args()
    for phase in (1, 2):
        files = files_of(args.text, phase)
        encode_corpus(files, args.cache, TextConfig(), progress=with_progress)
    if not args.encode_only:
        settings = {"optimizer": "muon", "lr": args.lr, "streams": args.rows, "epochs": 100}
        train(
            args.text,
            args.output,
            size=args.size,
            minutes=args.minutes,
            settings=[f"training.{name}={value}" for name, value in settings.items()],
            dropout=args.dropout,
            cache=args.cache,
            device=args.device,
        )


if __name__ == "__main__":
    main()
