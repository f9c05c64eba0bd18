"""Press releases of US senators, 2004 to 2008: lintool/GrimmerSenatePressReleases."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from sources.paragraphs import has_news_of_others, normalize
from sources.repository import list_files, read_texts

# UTF-8 that was read as Windows-1252 upstream
_MISREAD = {
    "\u00e2\u20ac\u2122": "'",
    "\u00e2\u20ac\u02dc": "'",
    "\u00e2\u20ac\u0153": '"',
    "\u00e2\u20ac\x9d": '"',
    "\u00e2\u20ac?": '"',
    '\u00e2\u20ac"': " - ",
    "\u00e2\u20ac\u201c": "-",
    "\u00e2\u20ac\u201d": " - ",
    "\u00e2\u20ac\u00a6": "...",
    "\u00c2 ": " ",
    "\u00c2": "",
    "\u00c3\u00a9": "\u00e9",
    "\u00c3\u00b1": "\u00f1",
    "\u00c3\u00a1": "\u00e1",
    "\u00c3\u00ad": "\u00ed",
    "\u00c3\u00b3": "\u00f3",
    "\u00c3\u00ba": "\u00fa",
    "\u00c3\u00bc": "\u00fc",
    "\u00c3\u00a8": "\u00e8",
}
_MISREAD_QUOTES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\u00e2\?", '"'),
        (r"(?<=\w)\u00e2(?=\w)", "'"),
        (r"(?<=\s)\u00e2(?=\s)", "-"),
        (r"(^|(?<=[\s(]))\u00e2(?=[\w\[$])", '"'),
        (r"(?<=[.,!?])\u00e2+", '"'),
        (r"(?<=\w)\u00e2(?=[\s,.;)]|$)", "'"),
    ]
]
_NAVIGATION = re.compile(
    r"^(media release|press release|for immediate release|contact|today:|###|-30-|\[?back|home"
    r"|print|share|search|page \d|skip |return to|sign up|biography|constituent|washington office"
    r"|\u00a9|copyright|click here|e-?mail|phone|tel|fax|permalink|news releases?|next|previous"
    r"|related|\(?\d{3}\)? ?\d{3})\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"\b(Suite|Room|Hart|Dirksen|Russell) (Senate )?(Office )?(Building)?\b.*\d{5}"
    r"|\(\d{3}\) ?\d{3}-\d{4}|\d{3}-\d{3}-\d{4}|https?://|www\.|@\w+\."
)
_BULLET = re.compile("^[*\u2022\u00b7o\u00a7-]+\\s+")
_DAMAGED = re.compile("[\u00c3\u00e2\ufffd]")
_MAX_CHARACTERS = 4000


def extract(git: Path) -> Iterator[str]:
    """Yield the paragraphs of press releases that have kept their punctuation."""
    for document in read_texts(git, list_files(git, "raw", suffix=".txt")):
        document = document.replace("\r", "\n")
        if has_news_of_others(document):
            continue
        lines = [normalize(line) for line in document.split("\n")]
        text = " ".join(filter(None, lines))
        if text and _share(text, ".,") >= 0.035:
            for paragraph in _join_wrapped(lines):
                paragraph = _BULLET.sub("", _repair(normalize(paragraph)))
                if _is_text(paragraph):
                    yield paragraph


def _join_wrapped(lines: list[str]) -> list[str]:
    """Join the lines of a document with a short line length; otherwise lines are paragraphs."""
    full = [line for line in lines if line]
    if sum(len(line) > 100 for line in full) >= 2 or len(full) <= 8:
        return full
    return [" ".join(group) for blank, group in groupby(lines, lambda line: not line) if not blank]


def _repair(text: str) -> str:
    for misread, right in _MISREAD.items():
        text = text.replace(misread, right)
    for pattern, replacement in _MISREAD_QUOTES:
        text = pattern.sub(replacement, text)
    return text


def _is_text(paragraph: str) -> bool:
    length = len(paragraph)
    headline = paragraph.isupper() or (paragraph.istitle() and length > 25)
    return not (
        (length < 160 and _NAVIGATION.match(paragraph))
        or (length < 250 and _ADDRESS.search(paragraph))
        or _DAMAGED.search(paragraph)
        or (length < 60 and paragraph[-1:] not in ".?!\"':" and not headline)
        or (paragraph.count(" ") >= 14 and _share(paragraph, ".,;:?!") < 0.03)
        or length > _MAX_CHARACTERS
    )


def _share(text: str, marks: str) -> float:
    """Return the number of punctuation marks per word."""
    return sum(map(text.count, marks)) / (text.count(" ") + 1)
