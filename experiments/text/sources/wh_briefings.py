"""White House press briefings, 2009 to 2017: RIstiaque/Country-Counting-from-Press-Briefings."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sources.paragraphs import normalize, strip_tags
from sources.repository import list_files, read_texts

_BYTES = re.compile(r"b'(?:[^'\\]|\\.)*'|b\"(?:[^\"\\]|\\.)*\"", re.S)
_PARAGRAPH = re.compile(r"<p\b[^>]*>(.*?)</p>", re.S)
_BREAK = re.compile(r"<br\s*/?>|\u00a0{3,}(?=\s*(?:Q|MR\.|MS\.))")
_QUESTION = re.compile(r"^Q\s+")
_SPEAKER = re.compile(
    r"^(?:MR|MS|MRS|DR|SECRETARY|ADMIRAL|GENERAL|AMBASSADOR|DIRECTOR|ADMINISTRATOR|THE|SENIOR"
    r"|PRESIDENT|DEPUTY|GOVERNOR|CHAIRMAN)\.?(?: [A-Z][A-Z'\u2019.-]+)*:\s*"
)
_SOUND = re.compile(r"\s*\((?:Laughter|Applause|Inaudible|Off-mike)\.?\)\s*")
_NOTICE = re.compile(r"^(END|Washington, ?D|For Immediate|Office of the Press|\d+:\d\d [AP]\.M)")


def extract(git: Path) -> Iterator[str]:
    """Yield what was said, without the names of speakers."""
    files = list_files(git, "pressBriefings", suffix=".html")
    for page in read_texts(git, files):
        for paragraph in _PARAGRAPH.findall(_decode_literals(page)):
            for line in _BREAK.split(paragraph):
                text = _QUESTION.sub("", normalize(strip_tags(line)))
                text = _SOUND.sub(" ", _SPEAKER.sub("", text))
                if not _NOTICE.search(text):
                    yield text


def _decode_literals(page: str) -> str:
    """Return a page, which upstream stored as literals of Python bytes, as text."""
    texts = []
    for literal in _BYTES.findall(page):
        with suppress(SyntaxError, ValueError):
            texts.append(ast.literal_eval(literal).decode("utf-8", "replace"))
    return "\n".join(texts) if texts else page
