"""Write the documents of OntoGUM whose texts may be used commercially, for `elmore train coref`.

The license file of GUM (https://github.com/amir-zeldes/gum, LICENSE.md) names the license of the
texts by genre, and the annotations are CC BY 4.0. Essays, fiction, letters, podcasts and how-to
guides are for non-commercial use only; conversations, speeches, textbooks and vlogs are not in the
list. The other genres are kept.

Run as: python experiments/tasks/ontogum.py ontogum.train.conll.xz train.conll
"""

import argparse
import re
from pathlib import Path

from elmore.text.lines import read_lines

GENRES = {
    "academic": "CC BY 4.0",
    "bio": "CC BY-SA 3.0",
    "court": "CC BY 4.0",
    "interview": "CC BY 2.5",
    "news": "CC BY 2.5",
    "voyage": "CC BY-SA 3.0",
}
"""Genres whose texts may be used commercially, and their licenses."""


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", type=Path, help="documents in the format of CoNLL-2012")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    kept, keep = [], False
    for line in read_lines(args.input):
        if line.startswith("#begin document"):
            begin = re.match(r"#begin document \(GUM_([a-z]+)_", line)
            keep = begin is not None and begin[1] in GENRES
        if keep:
            kept.append(line)
    if not kept:
        raise SystemExit(f"{args.input}: no document of GUM; expected OntoGUM in CoNLL-2012 format")
    args.output.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


if __name__ == "__main__":
    main()
