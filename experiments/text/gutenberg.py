"""Extract modern English books of Project Gutenberg, one paragraph per line.

    python experiments/text/gutenberg.py GIT OUT.txt --exclude valid.txt.xz litbank.conll

GIT is the git directory of legobridge/copyshield-llm, which has the books as data/text/PG*.txt and
their authors in data/metadata.csv. A book is used if it is in English, its author was born from
1860 to 1920 (later books may be under copyright), and none of its paragraphs shares 13 consecutive
words with a file of `--exclude`. At most 60,000 words per book are taken, in whole paragraphs.
Books are separated by blank lines. Books that the git directory lacks are reported and skipped.
"""

import argparse
import csv
import io
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from itertools import accumulate, takewhile
from pathlib import Path

from build_mix import Filter, read_evaluation_set

_LICENSE = re.compile(r"project gutenberg|gutenberg-tm|ebook|transcriber", re.IGNORECASE)
_MARKUP = re.compile(
    r"\[(?:illustration|footnote|sidenote)[^\]]*\]|(?<!\w)_|_(?!\w)", re.IGNORECASE
)
_BORN = range(1860, 1921)
_MIN_WORDS = 8  # per paragraph
_MAX_WORDS = 60_000  # per book
_ORDER = 13


def show(git: Path, path: str) -> str:
    """Return the text of a file in a repository, which is empty if the file is not there."""
    command = ["git", f"--git-dir={git}", "show", f"HEAD:{path}"]
    return subprocess.run(command, capture_output=True, check=False).stdout.decode(
        "utf-8", "replace"
    )


def read_books(git: Path) -> Iterator[str]:
    """Yield the names of English books by authors born in `_BORN`."""
    for row in csv.DictReader(io.StringIO(show(git, "data/metadata.csv"))):
        year = row["authoryearofbirth"]
        if row["language"] == "['en']" and year and int(float(year)) in _BORN:
            yield row["id"]


def is_prose(paragraph: str) -> bool:
    """Return whether a paragraph is running text, not a heading, a table, verse or a notice."""
    lines = paragraph.splitlines()
    words = paragraph.split()
    letters = sum(map(str.isalpha, paragraph))
    return (
        len(words) >= _MIN_WORDS
        and letters > 0.7 * len(paragraph)
        and sum(map(str.isupper, paragraph)) < 0.2 * letters
        and len(words) > 5 * len(lines)  # lines of verse and tables are short
        and not any(line.startswith("  ") for line in lines)
        and "\ufffd" not in paragraph
        and not _LICENSE.search(paragraph)
    )


def paragraphs_of(text: str) -> Iterator[str]:
    """Yield the paragraphs of a book, each on one line."""
    for paragraph in re.split(r"\n\s*\n", text.replace("\r", "")):
        if is_prose(paragraph.strip("\n")):
            yield unicodedata.normalize("NFC", " ".join(_MARKUP.sub("", paragraph).split()))


def main() -> None:
    """Write the books."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("git", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--exclude", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    heldout = Filter(_ORDER)
    for path in args.exclude:
        heldout.exclude(read_evaluation_set(path))
    books = excluded = words = 0
    with args.output.open("w", encoding="utf-8", newline="\n") as file:
        for name in sorted(set(read_books(args.git))):
            text = show(args.git, f"data/text/{name}_text.txt")
            if not text:
                print(f"{name}: not in {args.git}")
                continue
            paragraphs = list(paragraphs_of(text))
            if any(heldout.reject(paragraph) == "overlap" for paragraph in paragraphs):
                excluded += 1
                continue
            totals = accumulate(len(paragraph.split()) for paragraph in paragraphs)
            count = sum(1 for _ in takewhile(lambda total: total <= _MAX_WORDS, totals))
            books += 1
            words += sum(len(paragraph.split()) for paragraph in paragraphs[:count])
            file.writelines(f"{paragraph}\n" for paragraph in [*paragraphs[:count], ""])
    print(f"{words:,} words in {books:,} books; {excluded:,} books overlap with held-out text")


if __name__ == "__main__":
    main()
