"""Korean Wikipedia of 2023: 97danielj/WordEmbedding, folder `text/`.

Every 200th article is held out, so that held-out text and training text share no article.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.repository import list_files, read_files

_ARTICLE = re.compile(r'<doc id="\d+"[^>]*>\n(.*?)\n</doc>', re.S)
_MARKUP = re.compile(r"&lt;[^&]*?&gt;|<[^>]*>|__[A-Z]+__")
_SYLLABLE = re.compile("[\uac00-\ud7a3]")
_MIN_SYLLABLES = 20
_HELDOUT_EVERY = 200


def extract_training_text(git: Path) -> Iterator[str]:
    """Yield the paragraphs of all articles that are not held out."""
    for number, paragraphs in enumerate(_articles(git), 1):
        if number % _HELDOUT_EVERY:
            yield from paragraphs


def extract_heldout_text(git: Path) -> Iterator[str]:
    """Yield the paragraphs of held-out articles."""
    for number, paragraphs in enumerate(_articles(git), 1):
        if number % _HELDOUT_EVERY == 0:
            yield from paragraphs


def _articles(git: Path) -> Iterator[list[str]]:
    """Yield the paragraphs of each article that has any, without those of earlier articles."""
    files = [file for file in list_files(git, "text") if "/wiki_" in file.path]
    seen = set()  # bots have written articles that repeat each other
    for content in read_files(git, files):
        for article in _ARTICLE.findall(content.decode("utf-8", "replace")):
            lines = article.split("\n")[1:]  # without the title
            lines = [" ".join(_MARKUP.sub(" ", line).replace("()", "").split()) for line in lines]
            paragraphs = []
            for line in filter(_is_korean, lines):
                if (key := hash(line)) not in seen:
                    seen.add(key)
                    paragraphs.append(line)
            if paragraphs:
                yield paragraphs


def _is_korean(line: str) -> bool:
    """Return whether a line is Korean text, not a heading or a list of names."""
    syllables = len(_SYLLABLE.findall(line))
    return syllables >= _MIN_SYLLABLES and syllables >= 0.5 * len(line.replace(" ", ""))
