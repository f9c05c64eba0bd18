"""Posts of Digital.gov and 18F: GSA/digitalgov.gov and 18F/18f.gsa.gov."""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize, strip_tags
from sources.repository import list_files, read_texts

_OTHER = re.compile(
    r"README|LICENSE|CONTRIB|\.github|archetypes|node_modules|/es/|_es\.md"  # no posts, or Spanish
)
_TITLE = re.compile(r"^title:\s*[\"']?(.*?)[\"']?\s*$", re.M)
_NO_TEXT = re.compile(
    r"```.*?```|<(script|style|table|pre)\b.*?</\1>|\{%.*?%\}|\{\{.*?\}\}|<!--.*?-->", re.S
)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*[-*+]\s|\s*\d+\.\s|#)|</?(?:p|li|div|h\d)\b[^>]*>")
_MARKDOWN = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"!\[[^\]]*\]\([^)]*\)|\[\^[^\]]*\]:?", " "),  # images and footnotes
        (r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1"),  # links
        (r"\{:?[^}]*\}", ""),  # attributes
        (r"^\s*(?:[-*+]|\d+\.)\s+", ""),  # list items
        (r"[*_`]{1,3}(\S(?:.*?\S)?)[*_`]{1,3}", r"\1"),  # emphasis and code
    ]
]
_LEFTOVER = re.compile(r"https?://|[{}|\\]|www\.")


def extract(*gits: Path) -> Iterator[str]:
    """Yield the titles and paragraphs of all posts."""
    for git in gits:
        files = [f for f in list_files(git, suffix=".md") if not _OTHER.search(f.path)]
        for post in read_texts(git, files):
            yield from _paragraphs(post)


def _paragraphs(post: str) -> Iterator[str]:
    if post.startswith("---"):
        end = post.find("\n---", 3)
        front = post[:end]
        post = post[end + 4 :] if end > 0 else post
        if title := _TITLE.search(front):
            yield title[1].replace('\\"', '"').replace("''", "'")
    for block in _BLOCK.split(_NO_TEXT.sub(" ", post)):
        text = block.strip()
        if text.startswith(("#", "|", ">", "    ")):
            text = text.lstrip("#> ")
        for pattern, replacement in _MARKDOWN:
            text = pattern.sub(replacement, text)
        text = normalize(strip_tags(text))
        if not _LEFTOVER.search(text) and text.endswith(tuple('.?!":)\u201d\u2019')):
            yield text
