"""Travel guides, nonfiction and government reports of the Open American National Corpus.

NirvekPanda/skill-demo1-data (written_2/) and Ktkenny127/docsearch (technical/). Biomedical papers
and reprinted newspaper articles are left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize
from sources.repository import list_files, read_texts

_USED = re.compile(r"written_2/|technical/")
_LEFT_OUT = re.compile(r"/biomed/|/plos/|/Media/")
_NO_TEXT = re.compile(r"https?://|www\.|\.{4,}|_{3,}")
_MIN_CHARACTERS = 40
_LONG_LINES = 120  # characters; longer lines are not wrapped
_MAX_CHARACTERS = 1500  # of a paragraph without a recognizable end


def extract(*gits: Path) -> Iterator[str]:
    """Yield the paragraphs of all files."""
    for git in gits:
        files = [
            file
            for file in list_files(git, suffix=".txt")
            if _USED.search(file.path) and not _LEFT_OUT.search(file.path)
        ]
        for text in read_texts(git, files):
            for paragraph in map(normalize, _join(text.replace("\r", "").split("\n"))):
                ends = paragraph[-1:] in tuple(".?!\"'):;")
                if len(paragraph) >= _MIN_CHARACTERS and ends and not _NO_TEXT.search(paragraph):
                    yield paragraph


def _join(lines: list[str]) -> Iterator[str]:
    """Join wrapped lines. A paragraph ends at a blank line, or at a short one with a period."""
    lines = [line.strip() for line in lines]
    lengths = sorted(len(line) for line in lines if line)
    width = lengths[int(0.75 * len(lengths))] if lengths else 0
    wrapped = width < _LONG_LINES
    paragraph: list[str] = []
    for line in lines:
        is_heading = (
            line
            and wrapped
            and len(line) < 0.7 * width
            and line[-1] not in ".?!,;:\"'"
            and (not paragraph or paragraph[-1][-1] in ".?!\"'")
        )
        if line and not is_heading:
            paragraph.append(line)
        is_last = line and (
            (wrapped and len(line) < 0.9 * width and line[-1] in ".?!\"')")
            or (sum(map(len, paragraph)) > _MAX_CHARACTERS and line[-1] in ".?!")
        )
        if paragraph and (not line or is_heading or is_last):
            yield " ".join(paragraph)
            paragraph = []
    if paragraph:
        yield " ".join(paragraph)
