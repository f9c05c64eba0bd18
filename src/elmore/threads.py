"""OpenMP settings for machines that several processes share."""

import os
import sys


def limit_spinning() -> None:
    """Let idle OpenMP threads sleep after microseconds instead of milliseconds.

    GNU OpenMP keeps threads spinning between parallel regions, which takes the CPU away from other
    processes: two that embed on the same cores slow each other down many times over. The value is
    the one that GNU OpenMP itself uses when a process has more threads than cores. It is read when
    torch is imported, so this has an effect only before, and a value set by the user stays.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
