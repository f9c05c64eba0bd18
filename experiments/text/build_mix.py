"""Build the training text of a pre-trained model: deduplicate its sources and remove held-out text.

    python experiments/text/build_mix.py experiments/text/english.toml SOURCES -o OUT \
        --exclude valid.txt.xz eng.testa eng.testb dev-v1.1.json ...

The manifest lists the sources; SOURCES is the folder of their files, one paragraph per line with an
optional blank line between documents. Two paragraphs are duplicates if they have the same words,
ignoring case and punctuation; the first one is kept, so the order of the sources matters. A
paragraph is also removed if it shares an n-gram of words with a file of `--exclude` or with a
held-out article, or if it equals one of their lines.

Writes OUT/<name>.txt per source, OUT/heldout-<name>.txt for a source with held-out documents, and
OUT/table.md. The result depends only on the input files and their order.
"""

import argparse
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from elmore.text.lines import open_bytes, read_lines

_WORD = re.compile(r"\w+")
_BRACKET = re.compile(r"-(?:lrb|rrb|lsb|rsb|lcb|rcb)-")
_SPLIT_NOT = re.compile(r"\s+(?=n['\u2019]t\b)")
_NODE = re.compile(r"\(\d |\)")
_TAG = re.compile(r"<[^>]*>")
_MIN_HELDOUT_WORDS = 100


def words_of(text: str) -> list[str]:
    """Return the words of a text without case and punctuation."""
    return _WORD.findall(text.casefold())


def digest(words: Iterable[str]) -> bytes:
    """Return a hash of words."""
    return hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()


def count_words(paragraphs: Iterable[str]) -> int:
    """Return the number of whitespace-separated words."""
    return sum(len(paragraph.split()) for paragraph in paragraphs)


class Filter:
    """Decides which paragraphs to keep: new ones that do not overlap with held-out text."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.heldout: set[str] = set()
        """N-grams of held-out text."""
        self.seen: set[bytes] = set()
        """Hashes of held-out lines and of all paragraphs so far."""

    def exclude(self, lines: Iterable[str]) -> None:
        """Add held-out text."""
        for line in lines:
            words = words_of(line)
            self.heldout.update(self._ngrams(words))
            self.seen.add(digest(words))

    def reject(self, paragraph: str) -> str | None:
        """Return why a paragraph is removed, or None to keep it."""
        words = words_of(paragraph)
        if not self.heldout.isdisjoint(self._ngrams(words)):
            return "overlap"
        key = digest(words)
        if key in self.seen:
            return "duplicate"
        self.seen.add(key)
        return None

    def _ngrams(self, words: list[str]) -> Iterator[str]:
        return map(" ".join, zip(*(words[i:] for i in range(self.order)), strict=False))


def read_documents(path: Path) -> Iterator[list[str]]:
    """Yield the paragraphs of each document."""
    for blank, lines in groupby(read_lines(path), lambda line: not line.strip()):
        if not blank:
            yield list(lines)


def read_evaluation_set(path: Path) -> Iterator[str]:
    """Yield the sentences or paragraphs of an evaluation set, by its format.

    Reads JSON and JSON Lines, WSD data in XML, sentiment trees, tables with one word per line
    (CoNLL-2003, CoNLL-2012, CoNLL-U), tab-separated fields, and plain text.
    """
    name = path.name.removesuffix(".xz")
    lines = read_lines(path)
    texts: Iterable[str]
    if name.endswith(".json"):
        with open_bytes(path) as file:
            texts = list(_strings(json.load(file)))
    elif name.endswith(".jsonl"):
        texts = (text for line in lines for text in _strings(json.loads(line)))
    elif name.endswith(".xml"):
        texts = _TAG.sub(" ", " ".join(lines).replace("</sentence>", "\n")).split("\n")
    elif name.endswith((".txt", ".tsv")):
        texts = (_tree_words(field) for line in lines for field in line.split("\t"))
    else:
        texts = _table_sentences(lines)
    for text in texts:  # undo PTB tokenization as far as it changes words
        yield _SPLIT_NOT.sub("", _BRACKET.sub(" ", text.casefold()))


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _tree_words(line: str) -> str:
    """Return the words of a sentiment tree; other text is returned as it is."""
    return _NODE.sub(" ", line) if re.match(r"\(\d \(", line) else line


def _table_sentences(lines: Iterable[str]) -> Iterator[str]:
    comments = ("# ", "#begin ", "#end ")
    for outside, rows in groupby(lines, lambda line: not line or line.startswith(comments)):
        if not outside:
            yield " ".join(map(_table_word, rows))


def _table_word(row: str) -> str:
    fields = row.split()
    if len(fields) > 10:  # CoNLL-2012: document, part, index, word
        return fields[3]
    if len(fields) == 10:  # CoNLL-U: index, word; a range such as 6-7 repeats words 6 and 7
        return fields[1] if fields[0].isdigit() else ""
    return fields[0]


def build(manifest: dict[str, Any], folder: Path, exclude: list[Path], output: Path) -> str:
    """Write the training text, and return a Markdown table of its sources."""
    keep = Filter(manifest["ngram"])
    for path in exclude:
        keep.exclude(read_evaluation_set(path))
    heldout: set[bytes] = set()
    for source in manifest["source"]:
        if count := source.get("heldout_documents"):
            documents = [d for file in source["files"] for d in read_documents(folder / file)]
            documents = [d for d in documents if count_words(d) >= _MIN_HELDOUT_WORDS]
            documents = sorted(documents, key=digest)[:count]
            heldout.update(map(digest, documents))
            keep.exclude(paragraph for document in documents for paragraph in document)
            text = "\n\n".join("\n".join(document) for document in documents) + "\n"
            (output / f"heldout-{source['name']}.txt").write_text(text, encoding="utf-8")

    rows = [
        "| source | origin | license | words | words kept | duplicate | overlap | SHA-256 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total = 0
    for source in manifest["source"]:
        path = output / f"{source['name']}.txt"
        words = {"all": 0, "kept": 0, "duplicate": 0, "overlap": 0}
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for document in (d for name in source["files"] for d in read_documents(folder / name)):
                words["all"] += count_words(document)
                if heldout and digest(document) in heldout:
                    continue
                kept = []
                for paragraph in document:
                    if reason := keep.reject(paragraph):
                        words[reason] += count_words([paragraph])
                    else:
                        kept.append(paragraph)
                if kept:
                    words["kept"] += count_words(kept)
                    file.writelines(f"{paragraph}\n" for paragraph in [*kept, ""])
        total += words["kept"]
        with path.open("rb") as binary:
            checksum = hashlib.file_digest(binary, "sha256").hexdigest()
        counts = " | ".join(f"{count:,}" for count in words.values())
        rows.append(
            f"| {source['name']} | {source['origin']} | {source['license']} | {counts} "
            f"| {checksum} |"
        )
        print(rows[-1], flush=True)
    rows.append(f"| total | | | | {total:,} | | | |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path, help="TOML file that lists the sources")
    parser.add_argument("sources", type=Path, help="folder of the source files")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the result")
    parser.add_argument("--exclude", type=Path, nargs="*", default=[], help="held-out files")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    manifest = tomllib.loads(args.manifest.read_text(encoding="utf-8"))
    table = build(manifest, args.sources, args.exclude, args.output)
    (args.output / "table.md").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
