"""`elmore embed --engine ray`: contextual vectors for many files, on a cluster."""

import json
from pathlib import Path
from typing import Any


def embed_with_ray(files: list[Path], output: Path, *, json_output: bool, **options: Any) -> None:
    """Run `embed_partitions` with the options of the command, and print its result."""
    from elmore.integrations.ray import embed_partitions
    from elmore.progress import with_progress
    from elmore.training.interruption import InterruptedRunError

    try:
        result = embed_partitions(files, output, progress=with_progress, **options)
    except KeyboardInterrupt as error:
        raise InterruptedRunError("interrupted; run the same command again to continue") from error
    if json_output:
        print(json.dumps(result._asdict() | {"folder": str(result.folder)}))
        return
    rows = f"{result.sentences:,} sentence{'s' if result.sentences != 1 else ''}"
    rows += f" in {result.partitions:,} partition{'s' if result.partitions != 1 else ''}"
    if result.skipped == result.partitions:
        print(f"{result.folder} is complete: {rows}")
        return
    skipped = f", {result.skipped:,} of them complete before" if result.skipped else ""
    speed = result.words / max(result.seconds, 1e-9)
    print(
        f"{rows}{skipped} -> {result.folder} "
        f"({result.words:,} words in {result.seconds:.1f} s, {speed:,.0f} words/s)"
    )
