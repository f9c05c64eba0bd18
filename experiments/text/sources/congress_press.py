"""Press releases of members of the US Congress: dwillis/congress-press, its whole history."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize, strip_tags
from sources.repository import list_history, read_files

_NOTICE = re.compile(
    r"(^###$|FOR IMMEDIATE RELEASE|^Contact:|click here|@mail\.house|\(202\)|https?://"
    r"|Watch .* here|Permalink|Press Release$|^Tweet|Facebook|Twitter)",
    re.IGNORECASE,
)
_MAX_NOTICE_WORDS = 29


def extract(git: Path) -> Iterator[str]:
    """Yield the titles and paragraphs of all press releases."""
    seen = set()
    for content in read_files(git, list_history(git, suffix=".jsonl")):
        for line in content.split(b"\n"):
            try:
                release = json.loads(line)
            except ValueError:
                continue
            text = release.get("text") or ""
            key = release.get("url"), len(text)
            if not text or key in seen:
                continue
            seen.add(key)
            yield strip_tags(release.get("title") or "")
            for markup in re.split(r"[\r\n]+", text):
                paragraph = normalize(strip_tags(markup))
                is_short = len(paragraph.split()) <= _MAX_NOTICE_WORDS
                if not (is_short and _NOTICE.search(paragraph)):
                    yield paragraph
