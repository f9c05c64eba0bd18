"""Statements of the White House and the State Department, 2021 and 2022.

All versions of `data.rss` in markschaver/White-House-PR or markschaver/State-Department-PR.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize, strip_tags
from sources.repository import list_history, read_texts

_ITEM = re.compile(r"<item>(.*?)</item>", re.S)
_ID = re.compile(r"<guid[^>]*>(.*?)</guid>")
_TITLE = re.compile(r"<title>(.*?)</title>", re.S)
_CONTENT = [
    re.compile(rf"<{tag}><!\[CDATA\[(.*?)\]\]></{tag}>", re.S)
    for tag in ("content:encoded", "description")
]
_NO_TEXT = re.compile(r"<(script|style|table|figure)\b.*?</\1>", re.S)
_BLOCK = re.compile(r"</?(?:p|div|li|ul|ol|h\d|blockquote|br)\b[^>]*/?>")
_SPEAKER = re.compile(
    r"^(?:Q|QUESTION|THE PRESIDENT|THE VICE PRESIDENT|THE FIRST LADY|PRESIDENT BIDEN"
    r"|VICE PRESIDENT HARRIS|MODERATOR|OPERATOR"
    r"|SENIOR (?:ADMINISTRATION|STATE DEPARTMENT) OFFICIAL[^:]{0,20}"
    r"|(?:MR|MS|MRS|DR|SECRETARY|ADMIRAL|GENERAL|AMBASSADOR|DIRECTOR|ADMINISTRATOR"
    r"|FOREIGN MINISTER|PRIME MINISTER|ASSISTANT SECRETARY|DEPUTY SECRETARY|UNDER SECRETARY"
    r"|SENATOR|GOVERNOR|MAYOR|LEADER|SPEAKER)\.? [A-Z' .\-\u00C0-\u00DD]{2,40})(?::|\s{2,})\s*"
)
_QUESTION = re.compile(r"^Q\s+")
_SOUND = re.compile(r"\s*\((?:Laughter|Applause|Inaudible|Crosstalk)\.?\)\s*")
_NOTICE = re.compile(
    r"^(###|# # #|END\b|\d+:\d\d [AP]\.?M|The post .* appeared first|For (more|further) information"
    r"|Washington, ?DC?$|Official websites use)"
)
_LEFTOVER = re.compile(r"https?://|www\.|jQuery|function\(")


def extract(git: Path) -> Iterator[str]:
    """Yield the titles and paragraphs of all items, without the names of speakers."""
    seen = set()
    versions = [file for file in list_history(git, suffix="data.rss") if file.path == "data.rss"]
    for feed in read_texts(git, versions):
        for item in _ITEM.findall(feed):
            found = _ID.search(item)
            key = found[1] if found else item[:200]
            if key in seen:
                continue
            seen.add(key)
            if title := _TITLE.search(item):
                text = title[1].replace("<![CDATA[", "").replace("]]>", "")
                yield strip_tags(html.unescape(text))
            if content := _CONTENT[0].search(item) or _CONTENT[1].search(item):
                yield from _paragraphs(content[1])


def _paragraphs(markup: str) -> Iterator[str]:
    for block in _BLOCK.split(_NO_TEXT.sub(" ", markup)):
        text = normalize(strip_tags(block))
        text = _SOUND.sub(" ", _QUESTION.sub("", _SPEAKER.sub("", text)))
        if not _NOTICE.match(text) and not _LEFTOVER.search(text):
            yield text
