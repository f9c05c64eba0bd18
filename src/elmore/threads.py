"""OpenMP settings for machines that several processes share."""

import os
import sys


def limit_spinning() -> None:
    """Let idle OpenMP threads sleep after microseconds instead of milliseconds.

    GNU OpenMP keeps threads spinning between parallel regions, which takes the CPU away from other
    processes: two that embed on the same cores slow each other down many times over. The value is
    the one that GNU OpenMP uses when there are more threads than cores. libgomp reads it when torch
    is imported, so call this before. A value set by the user is kept.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
