"""Split the SNLI dev set, to add most of it to the training set, of which only a part is available.

Run as: python experiments/snli_protocol.py snli_1.0_dev.jsonl DIR

DIR/learned.jsonl      all but the last 1,000 pairs, added to the training set
DIR/held_out.jsonl     the last 1,000 pairs, the new dev set
"""

import argparse
import json
from pathlib import Path

from elmore.text.lines import read_lines

LEARNED, HELD_OUT = "learned.jsonl", "held_out.jsonl"
NUM_HELD_OUT = 1_000


def split_dev(dev: Path, folder: Path) -> None:
    """Write the two parts of a dev set, without pairs that have no gold label."""
    lines = [line for line in read_lines(dev) if json.loads(line)["gold_label"] != "-"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in ((LEARNED, lines[:-NUM_HELD_OUT]), (HELD_OUT, lines[-NUM_HELD_OUT:])):
        (folder / name).write_text("".join(f"{line}\n" for line in part), encoding="utf-8")


def main() -> None:
    """Split the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("dev", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    split_dev(args.dev, args.folder)


if __name__ == "__main__":
    main()
