"""`elmore neighbors`: the words of a corpus that are nearest to a word in its sentence."""

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
    """Find the words of a corpus that are nearest to a word in its sentence.

    Example: `elmore neighbors "They put on a [play] last night ." --corpus news.txt -m elmo/`

    Args:
        query: A sentence with one word in brackets.
        k: How many neighbors.
        layer: The layer whose vectors are compared; 0 knows no context.
    """
    from elmore.analysis.neighbors import nearest_neighbors, parse_query
    from elmore.cli.progress import with_progress
    from elmore.errors import InputError
    from elmore.text.lines import read_lines

    occurrence = parse_query(query, model.tokenizer)
    lines = with_progress(read_lines(corpus, replace_invalid=replace_invalid), "sentences compared")
    [found] = nearest_neighbors(model.load(), [occurrence], lines, k=k, layer=layer)
    if not found:
        raise InputError(f"{corpus} holds no word to compare with; expected one sentence a line")
    if json_output:
        print(json.dumps([_plain(*neighbor) for neighbor in found]))
        return
    print(f"       {occurrence}")
    for neighbor in found:
        print(f"{neighbor.similarity:6.3f} {neighbor.occurrence}")


def _plain(similarity: float, line: int, occurrence: "Occurrence") -> dict[str, str | float]:
    return {
        "similarity": similarity,
        "line": line,
        "word": occurrence.word,
        "sentence": str(occurrence),
    }
