"""Press releases of 15 members of Congress to 2024: Hussain-Altamimi/Congress_Press_Releases."""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import has_news_of_others, normalize
from sources.repository import list_files, read_texts

_CLOSING = ",.;:\u201d\u2019)"
_OPENING = "\u201c\u2018("
_DASHES = "\u2013\u2014"
_NOTICE = re.compile(r"https?://|www\.|\(\d{3}\) ?\d{3}-\d{4}|Click here|\|")
_MAX_CHARACTERS = 3000


def extract(git: Path) -> Iterator[str]:
    """Yield the titles and paragraphs of all press releases."""
    for text in read_texts(git, list_files(git, "output", suffix=".txt")):
        for document in re.split(r"\n==+\n", text):
            if has_news_of_others(document):
                continue
            if title := re.search(r"^Title:\s*(.*)", document, re.M):
                yield title[1]
            lines = map(normalize, document.partition("Content:")[2].split("\n"))
            for paragraph in _join([line for line in lines if line]):
                ends = paragraph[-1] in '.?!:\u201d")'
                if ends and len(paragraph) <= _MAX_CHARACTERS and not _NOTICE.search(paragraph):
                    yield paragraph


def _join(lines: list[str]) -> Iterator[str]:
    """Join lines that were split at links and emphasis."""
    paragraph = ""
    for line in lines:
        if paragraph and _continues(paragraph, line):
            space = "" if line[0] in _CLOSING or paragraph[-1] in _OPENING else " "
            paragraph += space + line
        else:
            if paragraph:
                yield paragraph
            paragraph = line
    if paragraph:
        yield paragraph


def _continues(paragraph: str, line: str) -> bool:
    first, last = line[0], paragraph[-1]
    return (
        first in f"{_CLOSING}{_DASHES}|"
        or first.islower()
        or last in f"{_OPENING}{_DASHES},"
        or (last not in '.?!:\u201d"' and (len(paragraph) < 40 or last.islower()))
    )
