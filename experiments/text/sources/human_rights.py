"""Country Reports on Human Rights Practices of the US Department of State, 2016 to 2024.

InsideClimateNews/2025-08-state-department-human-rights. The reports of a country repeat much of the
previous year's text, so a paragraph is kept if at least half of its 8-grams of words are new.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize, strip_tags
from sources.repository import list_files, read_texts

_PARAGRAPH = re.compile(r"<p\b[^>]*>(.*?)</p>", re.S)
_HEADING = re.compile(r"^[A-Z][A-Za-z ,/\u2019'-]{3,80}? ?: (?=[A-Z])")
_SECTION = re.compile(r" ?\((?:[Ss]ee|[Ff]or [^()]*, see)[^()]*[Ss]ection[^()]*\)")
_WORD = re.compile(r"\w+")
_NGRAM_WORDS = 8
_MIN_NEW_SHARE = 0.5


def extract(git: Path) -> Iterator[str]:
    """Yield the new paragraphs of all reports, without headings and references to sections."""
    seen: set[int] = set()
    for page in read_texts(git, list_files(git, "html", suffix=".html")):
        for paragraph in _PARAGRAPH.findall(page):
            text = _HEADING.sub("", _SECTION.sub("", normalize(strip_tags(paragraph))))
            if text.endswith(tuple('.?!:\u201d"')) and _add_ngrams(text, seen):
                yield text


def _add_ngrams(text: str, seen: set[int]) -> bool:
    """Add the n-grams of a text to `seen`; return whether at least half of them are new."""
    words = _WORD.findall(text.lower())
    ngrams = {
        hash(tuple(words[i : i + _NGRAM_WORDS]))
        for i in range(max(1, len(words) - _NGRAM_WORDS + 1))
    }
    new = ngrams - seen
    seen |= new
    return len(new) >= _MIN_NEW_SHARE * len(ngrams)
