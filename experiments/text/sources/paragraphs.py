"""Normalize paragraphs, and keep those that are running text."""

import hashlib
import html
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

_TAG = re.compile(r"<[^>]+>")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200c\u200d\u2060\ufeff\u00ad]"  # controls, soft hyphens
)
_WINDOWS = {code: bytes([code]).decode("cp1252", "ignore") for code in range(0x80, 0xA0)}
_THIRD_PARTY = re.compile(
    r"[A-Z]{4}[^.]{0,30}\(AP\)|\(AP\) ?[_\u2013\u2014-]|Associated Press (?:Staff )?Writer"
    r"|AP Newsmaker|\(Reuters\)|All Rights Reserved|Copyright (?:\u00a9 ?)?(?:19|20)\d\d"
    r"|\u00a9 ?(?:19|20)\d\d|[Rr]eprinted (?:with|by) permission|[Ss]taff [Ww]riter"
    r"|Staff Reporter|Cable News Network|\bSHOW:|TRANSCRIPT: ?\d"
    r"|\b[Bb]y [A-Z][a-z]+ (?:[A-Z]\. )?[A-Z][a-z]+,? (?:of )?[Tt]he (?:[A-Z][a-z]+ )+"
    r"(?:Times|Post|News|Herald|Journal|Tribune|Star|Gazette|Press|Sun|Globe|Record|Chronicle)\b"
)


def normalize(text: str) -> str:
    """Return a text on one line, in NFC, without HTML entities and invisible characters."""
    text = html.unescape(text)
    if any(0x80 <= ord(character) < 0xA0 for character in text):  # Windows-1252 read as Latin-1
        text = text.translate(_WINDOWS)
    text = re.sub("[\u00a0\u2028\u2029\t\n\r]", " ", text)
    return unicodedata.normalize("NFC", " ".join(_INVISIBLE.sub("", text).split()))


def strip_tags(markup: str) -> str:
    """Replace the tags of HTML or XML by spaces."""
    return _TAG.sub(" ", markup)


def has_news_of_others(document: str) -> bool:
    """Return whether a document looks like reprinted news, which is not in the public domain."""
    return bool(_THIRD_PARTY.search(document))


def keep_running_text(
    paragraphs: Iterable[str], *, min_words: int, min_letters: float = 0.6
) -> Iterator[str]:
    """Yield normalized paragraphs, each once, ignoring case.

    Args:
        paragraphs: The paragraphs of a source.
        min_words: Drop paragraphs with fewer words.
        min_letters: Drop paragraphs in which letters and spaces are a smaller share than this.
    """
    seen = set()
    for paragraph in map(normalize, paragraphs):
        if paragraph.count(" ") + 1 < min_words or "\ufffd" in paragraph:
            continue
        letters = sum(character.isalpha() or character == " " for character in paragraph)
        if letters / len(paragraph) < min_letters:
            continue
        key = hashlib.blake2b(paragraph.lower().encode(), digest_size=8).digest()
        if key not in seen:
            seen.add(key)
            yield paragraph


def write_paragraphs(path: Path, paragraphs: Iterable[str]) -> None:
    """Write one paragraph per line."""
    words = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for paragraph in paragraphs:
            words += paragraph.count(" ") + 1
            file.write(f"{paragraph}\n")
    print(f"{path}: {words:,} words")
