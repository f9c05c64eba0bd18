"""Write the English Web Treebank of Universal NER as CoNLL files for `elmore train ner`.

Source: https://github.com/UniversalNER/UNER_English-EWT (CC BY-SA 4.0). The entities are persons
(PER), organizations (ORG) and places (LOC).

Run as: python experiments/tasks/uner.py CLONE OUTPUT
"""

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path

COMMITS = {
    # The release, version 1, for what is measured.
    "dev": "8ed072de2fd24022cc62458997fe96a8fe191ea4",
    "test": "8ed072de2fd24022cc62458997fe96a8fe191ea4",
    # The first version, because the copy of the repository lacked the later ones. It has 7,005
    # entities; the release has 7,022. Other entities are marked as OTH, which becomes O.
    "train": "0c7ce0debb13a7d304da656f16309397e8ff36ef",
}
TYPES = ("PER", "ORG", "LOC")


def read_split(clone: Path, split: str) -> str:
    """Return a file of the dataset from the history of the repository."""
    name = f"{COMMITS[split]}:en_ewt-ud-{split}.iob2"
    command = ["git", "-C", str(clone), "show", name]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def to_conll(text: str) -> Iterator[str]:
    """Yield a line per token, with word and tag, and an empty line after each sentence."""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("#"):
            continue
        if not line:
            yield ""
            continue
        _, word, tag, *_ = line.split("\t")
        yield f"{word}\t{tag if tag[2:] in TYPES else 'O'}"


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path, help="clone of UNER_English-EWT")
    parser.add_argument("output", type=Path, help="folder for train.conll, dev.conll, test.conll")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for split in COMMITS:
        lines = to_conll(read_split(args.clone, split))
        path = args.output / f"{split}.conll"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
