"""`elmore index`: an index of the words of a corpus, for `elmore neighbors`."""

from dataclasses import asdict
from typing import Literal

from elmore.cli.options import (
    DEFAULT_MODEL,
    Json,
    ModelOptions,
    Output,
    Overwrite,
    ReplaceInvalid,
    Text,
)
from elmore.cli.show import count, rate, show


def index(
    text: Text,
    *,
    output: Output,
    model: ModelOptions = DEFAULT_MODEL,
    layer: Literal["top", "average"] | int = "top",
    kind: Literal["flat", "ivf-sq8", "ivf-pq"] | None = None,
    replace_invalid: ReplaceInvalid = False,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Build an index of the words of a corpus, to search for neighbors in it many times.

    Example: `elmore index news.txt -o idx/`

    Then: `elmore neighbors "They put on a [play] last night ." --index idx/`

    Args:
        output: Folder to write.
        layer: Layer to compare: the top one, the average of all, or one by its number.
        kind: flat is exact, and stores 4 bytes per dimension; ivf-sq8 stores one; ivf-pq stores one
            byte per 8 dimensions. By default flat up to 50,000 words, ivf-sq8 up to 20 million.
    """
    from elmore.integrations.search import build_index
    from elmore.progress import with_progress

    built = build_index(
        text,
        output,
        **asdict(model),
        layer=layer,
        kind=kind,
        replace_invalid=replace_invalid,
        overwrite=overwrite,
        progress=with_progress,
    )
    manifest = built.manifest
    speed = rate(manifest.words, "words", built.seconds)
    summary = (
        f"{count(manifest.sentences, 'sentence')} -> {built.folder} {speed}\n"
        f"{manifest.kind}, {manifest.bytes / 1e6:,.1f} MB, recall@10 {manifest.recall_at_10:.3f} "
        f"(mean of {manifest.recall_queries} words)"
    )
    facts = {"folder": built.folder, "seconds": built.seconds, **asdict(manifest)}
    show(facts, summary, as_json=json_output)
