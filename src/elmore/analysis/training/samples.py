"""Parts of data files: random samples, and dev sets split in two.

A sample is drawn from the units of a file: lines, sentences, documents or paragraphs.
"""

import json
import lzma
import math
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from elmore.errors import InputError
from elmore.text.lines import open_bytes, read_lines

Format = Literal["lines", "table", "sentences", "documents", "squad"]
"""`table`: lines after a header; `sentences`: separated by blank lines; `documents`: each begins
with `#begin document`; `squad`: JSON, whose units are paragraphs with their questions."""

MIN_EPOCH = 0.05
"""Smaller shares of the training data are repeated until an epoch is as long as with this share."""

_BEGIN, _END, _DOCSTART = "#begin document", "#end document", "-DOCSTART-"


class Units(NamedTuple):
    """The contents of a file."""

    header: str
    """First line of a table; otherwise empty."""

    units: list[str]
    """The text of each unit."""


def write_sample(source: Path, target: Path, form: Format, count: int) -> None:
    """Write a random sample of `count` units, the same in every call."""
    header, units = read_units(source, form)
    _write_units(target, form, Units(header, _draw(units, count, seed=0)))


def write_share(source: Path, target: Path, form: Format, share: float, seed: int) -> None:
    """Write a random share of the units of a training file.

    With the same seed, a smaller share is part of a larger one. Shares below `MIN_EPOCH` are
    repeated: otherwise most of the time would be spent on the evaluation after each epoch.
    """
    header, units = read_units(source, form)
    sample = _draw(units, math.ceil(share * len(units)), seed)
    _write_units(target, form, Units(header, sample * max(1, round(MIN_EPOCH / share))))


def split_pairs(source: Path, learned: Path, held_out: Path, num_held_out: int) -> None:
    """Split JSON lines in two: the last `num_held_out` pairs, and all before them.

    Pairs without a gold label are left out.
    """
    lines = [line for line in read_lines(source) if _gold_label(line, source) != "-"]
    _write_units(learned, "lines", Units("", lines[:-num_held_out]))
    _write_units(held_out, "lines", Units("", lines[-num_held_out:]))


def split_articles(source: Path, first: Path, second: Path) -> None:
    """Split a file of SQuAD in two, by article: in the order of their titles, every other one."""
    articles = sorted(_read_articles(source), key=lambda article: str(article.get("title")))
    for path, part in ((first, articles[::2]), (second, articles[1::2])):
        path.write_text(json.dumps({"data": part}), encoding="utf-8")


def read_units(path: Path, form: Format) -> Units:
    """Read the units of a file, which may be compressed.

    Raises:
        InputError: If the file is damaged.
    """
    match form:
        case "squad":
            return Units("", list(_paragraphs(path)))
        case "lines":
            return Units("", list(read_lines(path)))
        case "table":
            header, *lines = [*read_lines(path)] or [""]
            return Units(header, lines)
        case "sentences":
            return Units("", list(_sentences(path)))
        case "documents":
            return Units("", list(_documents(path)))


def _write_units(path: Path, form: Format, contents: Units) -> None:
    header, units = contents
    if form == "squad":
        path.write_text(f'{{"data": [{", ".join(units)}]}}', encoding="utf-8")
        return
    end = "\n\n" if form == "sentences" else "\n"
    head = f"{header}\n" if header else ""
    path.write_text(head + "".join(f"{unit}{end}" for unit in units), encoding="utf-8")


def _draw(units: Sequence[str], count: int, seed: int) -> list[str]:
    """Return a random sample, in the order of the file."""
    rows = np.random.default_rng(seed).permutation(len(units))[:count]
    return [units[row] for row in sorted(rows.tolist())]


def _gold_label(line: str, path: Path) -> str:
    try:
        return str(json.loads(line)["gold_label"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: {line!r:.60} has no gold_label; expected SNLI") from error


def _sentences(path: Path) -> Iterator[str]:
    """Yield the sentences of a file in columns, without the marks of documents."""
    lines = (line for line in read_lines(path) if not line.startswith((_BEGIN, _END, _DOCSTART)))
    for is_text, sentence in groupby(lines, key=lambda line: bool(line.strip())):
        if is_text:
            yield "\n".join(sentence)


def _documents(path: Path) -> Iterator[str]:
    lines: list[str] = []
    for line in read_lines(path):
        if line.startswith(_BEGIN) and lines:
            yield "\n".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield "\n".join(lines)


def _paragraphs(path: Path) -> Iterator[str]:
    for article in _read_articles(path):
        for paragraph in article["paragraphs"]:
            yield json.dumps({**article, "paragraphs": [paragraph]})


def _read_articles(path: Path) -> list[dict[str, Any]]:
    try:
        with open_bytes(path) as file:
            articles = json.load(file)["data"]
        for article in articles:
            list(article["paragraphs"])
    except (ValueError, KeyError, TypeError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path} is damaged, or not in the format of SQuAD ({error})") from error
    return list(articles)
