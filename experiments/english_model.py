r"""Train an English model in one phase, with the learning rate decaying linearly to zero.

Each source is read as often per epoch as `WEIGHTS` says: news, and the sources of the validation
text, more often than the rest. `models/en-large` was trained in this way, without the last two
sources:

    python experiments/english_model.py text/en -o en-large --size original --lr 3e-3 \
        --without current-events human-rights

`text/en` is the folder built by the commands in docs/models.md. The time limit excludes encoding
the text; to encode it in advance, use `--encode-only`. The same command resumes an interrupted run.
"""

import argparse
from pathlib import Path

from elmore.pretrain.config import read_config
from elmore.pretrain.run import pretrain
from elmore.progress import with_progress
from elmore.text.corpus import encode_corpus

WEIGHTS = {
    "wikinews": 4,
    "wikipedia": 2,
    "press": 2,
    "doj-press": 1,
    "gov-blogs": 1,
    "oanc": 2,
    "gutenberg": 2,
    "un-debates": 3,
    "elife": 4,
    "speeches": 4,
    "books": 1,
    "current-events": 4,
    "human-rights": 1,
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path, help="folder of the sources")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--size", default="medium", choices=["tiny", "small", "medium", "original"])
    parser.add_argument("--minutes", type=float, default=23.88, help="time of the training")
    parser.add_argument("--lr", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--rows", type=int, default=2048, help="batch size in rows")
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--without", nargs="*", default=[], choices=WEIGHTS, help="unused sources")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="folder of encoded text")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--encode-only", action="store_true", help="encode the text, do not train")
    args = parser.parse_args()
    files = [
        args.text / f"{name}.txt"
        for name, weight in WEIGHTS.items()
        if name not in args.without
        for _ in range(weight)
    ]
    if args.encode_only:
        encode_corpus(files, args.cache, progress=with_progress)
        return
    changes = [
        "training.optimizer=muon",
        "training.schedule=linear",
        "training.epochs=100",  # more than the time allows
        f"training.lr={args.lr}",
        f"training.streams={args.rows}",
        f"bilm.dropout={args.dropout}",
        "vocabulary.max_size=100003",
        "run.evaluations=4",
        "run.checkpoint_minutes=9",
    ]
    pretrain(
        files,
        args.output,
        read_config(size=args.size, changes=changes),
        heldout=args.text / "heldout-wikinews.txt",
        max_minutes=args.minutes,
        resume=args.output.exists(),
        cache=args.cache,
        device=args.device,
        report=print,
    )


if __name__ == "__main__":
    main()
