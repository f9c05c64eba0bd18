"""News items of Wikipedia's current events portal, 2002 to 2026: ianrastall/current-events-context.

Each item is one to five sentences about an event, followed by the names of its references.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize
from sources.repository import list_files, read_texts

_DAY = re.compile(r"\d{4}/\d\d/\d{4}-\d\d-\d\d\.yaml")
_PORTAL = "\nIntelligence_Payload:\n"  # other files are not from Wikipedia
_ITEM = re.compile(r"^  - (.*(?:\n    .*)*)", re.M)
_NAME = r"\((?=[^()]*(?:[A-Z]|\.[a-z]{2}))(?:[^()]|\([^()]*\)){2,80}\)"  # (Reuters)
_LAST_REFERENCE = re.compile(rf"\s*[,;]?\s*(?:{_NAME}|https?://\S+)\s*[.,;]?$")
_REFERENCES = re.compile(rf"(?<=[.!?\"\u201d])(?:\s*{_NAME}[.,;]?)+(?=\s+[A-Z\"\u201c])")
_END = tuple(".!?\"\u201d'\u2019")
_LEFTOVER = re.compile(
    r"https?:|www\.|\(\s*\)|\s[.,;:](?!\d)"
)  # also where a number was lost upstream


def extract(git: Path) -> Iterator[str]:
    """Yield the items of all days."""
    files = [file for file in list_files(git, suffix=".yaml") if _DAY.fullmatch(file.path)]
    for text in read_texts(git, files):
        for item in _ITEM.findall(text.partition(_PORTAL)[2]):
            yield from _clean(normalize(_read_scalar(item)))


def _read_scalar(item: str) -> str:
    """Return a string of a YAML file, which is plain or in single quotes."""
    item = item.strip()
    return item[1:-1].replace("''", "'") if item.startswith("'") else item


def _clean(item: str) -> Iterator[str]:
    """Yield an item without its references.

    Items without a reference that are not sentences are names of topics, and are skipped.
    """
    text = item
    while (shorter := _LAST_REFERENCE.sub("", text)) != text:
        text = shorter
    text = _REFERENCES.sub("", text)
    is_sentence = text.endswith(_END)
    if (is_sentence or text != item) and not _LEFTOVER.search(text):
        yield text if is_sentence else f"{text}."
