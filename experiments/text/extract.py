"""Extract the text of public repositories, one paragraph per line.

    python experiments/text/extract.py doj-press news21-pressReleasesDOJ/.git -o doj-press.txt

The arguments are the name of a source and the git directories of its repositories, in the order in
which docs/models.md lists them.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from sources import (
    au_pm,
    congress15,
    congress_press,
    current_events,
    doj_press,
    gov_blogs,
    human_rights,
    kowiki,
    oanc,
    rss_history,
    senate_press,
    wh_briefings,
)
from sources.paragraphs import keep_running_text, write_paragraphs


class Source(NamedTuple):
    """How to read a source, and which of its paragraphs are kept."""

    extract: Callable[..., Iterator[str]]
    min_words: int
    min_letters: float = 0.6


SOURCES = {
    "au-pm-media": Source(au_pm.extract_media_releases, min_words=4),
    "au-pm-speeches": Source(au_pm.extract_speeches, min_words=4),
    "congress-press": Source(congress_press.extract, min_words=5, min_letters=0.75),
    "congress15": Source(congress15.extract, min_words=6),
    "current-events": Source(current_events.extract, min_words=7),
    "doj-press": Source(doj_press.extract, min_words=6),
    "gov-blogs": Source(gov_blogs.extract, min_words=7),
    "human-rights": Source(human_rights.extract, min_words=12),
    "kowiki": Source(kowiki.extract_training_text, min_words=1, min_letters=0),
    "kowiki-heldout": Source(kowiki.extract_heldout_text, min_words=1, min_letters=0),
    "oanc": Source(oanc.extract, min_words=6),
    "senate-press": Source(senate_press.extract, min_words=5),
    "state-department": Source(rss_history.extract, min_words=5),
    "wh-briefings": Source(wh_briefings.extract, min_words=5),
    "white-house": Source(rss_history.extract, min_words=5),
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("git", type=Path, nargs="+", help="git directory of a repository")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    source = SOURCES[args.source]
    write_paragraphs(
        args.output,
        keep_running_text(
            source.extract(*args.git),
            min_words=source.min_words,
            min_letters=source.min_letters,
        ),
    )


if __name__ == "__main__":
    main()
