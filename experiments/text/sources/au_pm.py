"""Transcripts of Australian prime ministers since 1996: wragge/pm-transcripts.

Older documents are OCR of typescripts, and are left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize, strip_tags
from sources.repository import list_files, read_texts

_FIRST_YEAR = 1996
_SPEAKER = re.compile(
    r"^(PRIME MINISTER|PM|JOURNALIST|QUESTION|QUES|Q|A|HOST|PRESENTER|INTERVIEWER|COMPERE"
    r"|MR [A-Z' ]+|MRS [A-Z' ]+|[A-Z][A-Z' .-]{2,40})\s*[:;]\s*"
)
_NOTICE = re.compile(
    r"^(E ?& ?OE|E ?and ?O ?E|TRANSCRIPT OF|FOR (THE )?(PRESS|MEDIA)|PROOF COPY|EMBARGO"
    r"|PRIME MINISTER\.?$|CANBERRA|PAGE \d|\d+\.?$|For further information|Media contact|Contact:"
    r"|\[?ENDS\]?|P\. ?M\. No)",
    re.IGNORECASE,
)
_CDATA = re.compile(r"^\s*<!\[CDATA\[|\]\]>\s*$")
_BLOCK = re.compile(r"</?(?:p|div|li|ul|h\d|tr|table|blockquote)\b[^>]*>", re.IGNORECASE)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_NO_WORDS = re.compile(r"^[\W\d_]+$")
_UNFINISHED = re.compile(
    r"(?:,|\b(?:the|a|an|of|to|and|in|for|that|with|on|is|are|was|were|have|has|be|it|I|we|our|or"
    r"|at|by|as))$"
)
_WORD = re.compile(r"[A-Za-z']+")
_ENDS = ".?!\"':;)\u2019\u201d\u2026-\u2013\u2014"


def extract_media_releases(git: Path) -> Iterator[str]:
    """Yield the titles and paragraphs of media releases and statements."""
    return _extract(git, releases=True)


def extract_speeches(git: Path) -> Iterator[str]:
    """Yield the titles and paragraphs of speeches and interviews, without names of speakers."""
    return _extract(git, releases=False)


def _extract(git: Path, *, releases: bool) -> Iterator[str]:
    for document in read_texts(git, list_files(git, "transcripts", suffix=".xml")):
        year = _field(document, "release-date")[-4:]
        kind = _field(document, "release-type").lower()
        is_release = "release" in kind or "statement" in kind
        if not year.isdigit() or int(year) < _FIRST_YEAR or is_release != releases:
            continue
        title = normalize(_field(document, "title"))
        if not title.isupper():
            yield title
        for paragraph in _join_blocks(list(_blocks(_field(document, "content")))):
            text = _SPEAKER.sub("", normalize(paragraph))
            if _is_text(text):
                yield text


def _field(document: str, name: str) -> str:
    match = re.search(rf"<{name}>(.*?)</{name}>", document, re.S)
    return match[1] if match else ""


def _blocks(content: str) -> Iterator[str]:
    """Yield the blocks of a document, those with wrapped lines joined."""
    for block in _BLOCK.split(_CDATA.sub("", content.strip())):
        lines = [normalize(strip_tags(line)) for line in _BREAK.split(block)]
        lines = [line for line in lines if line]
        if len(lines) > 4 and sum(map(len, lines)) / len(lines) < 90:
            yield from _join_lines(lines, short=0.72, max_characters=700, hyphens=True)
        else:
            yield from (line for line in lines if not _NOTICE.match(line))


def _join_blocks(blocks: list[str]) -> Iterator[str]:
    """Join blocks that continue a sentence."""
    blocks = [normalize(re.sub(r"';(?=\w)", "'", normalize(block))) for block in blocks]
    blocks = [block for block in blocks if block]
    lines = [block for block in blocks if len(block) > 20]
    if (
        len(lines) > 6
        and sum(line[-1] not in '.?!:"' for line in lines) > 0.35 * len(lines)
        and sorted(map(len, lines))[len(lines) // 2] < 95
    ):  # each wrapped line is a block
        yield from _join_lines(blocks, short=0.75, max_characters=600, hyphens=False)
        return
    paragraph = ""
    for block in blocks:
        if (
            paragraph
            and not _SPEAKER.match(block)
            and paragraph[-1] not in '.?!:"'
            and (block[0].islower() or _UNFINISHED.search(paragraph))
        ):
            paragraph += f" {block}"
        else:
            if paragraph:
                yield paragraph
            paragraph = block
    if paragraph:
        yield paragraph


def _join_lines(
    lines: list[str], *, short: float, max_characters: int, hyphens: bool
) -> Iterator[str]:
    """Join wrapped lines. A paragraph ends at a short line or a new speaker, or if it is long.

    Args:
        lines: The lines.
        short: A line is short if its length is less than this share of the usual length.
        max_characters: A paragraph that is longer ends at the next sentence.
        hyphens: Whether words are hyphenated at the end of a line.
    """
    lengths = sorted(len(line) for line in lines if hyphens or len(line) > 20)
    usual = lengths[int(0.8 * len(lengths))]
    paragraph = ""
    for line in lines:
        if _NOTICE.match(line) or _NO_WORDS.match(line):
            continue
        if paragraph and _SPEAKER.match(line):
            yield paragraph
            paragraph = ""
        if hyphens and paragraph.endswith("-") and line[0].islower():
            paragraph = paragraph[:-1] + line
        else:
            paragraph = f"{paragraph} {line}".strip()
        is_short = len(line) < short * usual and line[-1] in (".?!\"'" if hyphens else '.?!"')
        is_long = len(paragraph) > max_characters and line[-1] in (".?!" if hyphens else '.?!"')
        if is_short or is_long:
            yield paragraph
            paragraph = ""
    if paragraph:
        yield paragraph


def _is_text(text: str) -> bool:
    words = _WORD.findall(text)
    if len(words) < 4 or (len(words) > 5 and text[-1] not in _ENDS):
        return False
    letters = sum(len(word) == 1 and word not in "aAIi" for word in words)
    capitals = sum(word.isupper() and len(word) > 1 for word in words)
    return letters / len(words) <= 0.08 and capitals / len(words) <= 0.6
