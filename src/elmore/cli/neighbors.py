"""`elmore neighbors`: nearest neighbors of a word in context."""

import json
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import DEFAULT_MODEL, Json, ModelOptions, ReplaceInvalid, Text

if TYPE_CHECKING:
    from elmore.analysis.neighbors import Occurrence


def neighbors(
    query: str,
    *,
    corpus: Text,
    k: Annotated[int, Parameter(alias="-k")] = 5,
    layer: Literal["top", "average"] | int = "top",
    model: ModelOptions = DEFAULT_MODEL,
    replace_invalid: ReplaceInvalid = False,
    json_output: Json = False,
) -> None:
    """Find the words of a corpus that are most similar to a word in context.

    Example: `elmore neighbors "They put on a [play] last night ." --corpus news.txt -m elmo/`

    Args:
        query: Sentence with one word in brackets.
        k: Number of neighbors.
        layer: Layer to compare: the top one, the average of all, or one by its number; layer 0 is
            context-independent.
    """
    from elmore.analysis.neighbors import nearest_neighbors, parse_query
    from elmore.errors import InputError
    from elmore.progress import with_progress
    from elmore.text.lines import read_lines

    embedder = model.load()
    occurrence = parse_query(query, embedder.tokenizer, embedder.language)
    lines = with_progress(read_lines(corpus, replace_invalid=replace_invalid), "sentences compared")
    [results] = nearest_neighbors(embedder, [occurrence], lines, k=k, layer=layer)
    if not results:
        raise InputError(f"{corpus} has no words to compare; expected one sentence per line")
    if json_output:
        print(json.dumps([_to_json(*neighbor) for neighbor in results]))
        return
    print(f"       {occurrence}")
    for neighbor in results:
        print(f"{neighbor.similarity:6.3f} {neighbor.occurrence}")


def _to_json(similarity: float, line: int, occurrence: "Occurrence") -> dict[str, str | float]:
    return {
        "similarity": similarity,
        "line": line,
        "word": occurrence.word,
        "sentence": str(occurrence),
    }
