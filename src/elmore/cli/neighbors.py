"""`elmore neighbors`: nearest neighbors of a word in context."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import DEFAULT_MODEL, Json, ModelOptions, ReplaceInvalid, Text
from elmore.cli.show import show

if TYPE_CHECKING:
    from elmore.analysis.neighbors import Occurrence
    from elmore.integrations.search import WordIndex


def neighbors(
    query: str,
    *,
    corpus: Text | None = None,
    index: Path | None = None,
    k: Annotated[int, Parameter(alias="-k")] = 5,
    layer: Literal["top", "average"] | int | None = None,
    model: ModelOptions = DEFAULT_MODEL,
    replace_invalid: ReplaceInvalid = False,
    json_output: Json = False,
) -> None:
    """Find the words of a corpus that are most similar to a word in context.

    Example: `elmore neighbors "They put on a [play] last night ." --corpus news.txt -m elmo/`

    With an index: `elmore neighbors "They put on a [play] last night ." --index idx/`

    Args:
        query: Sentence with one word in brackets.
        index: Folder written by `elmore index`, instead of a corpus.
        k: Number of neighbors.
        layer: Layer to compare: the top one (default), the average of all, or one by its number;
            layer 0 is context-independent. An index has one layer.
    """
    from elmore.analysis.neighbors import nearest_neighbors, parse_query
    from elmore.errors import InputError
    from elmore.progress import with_progress
    from elmore.text.lines import read_lines

    if (corpus is None) == (index is None):
        raise InputError("pass either --corpus or --index")
    words = None if index is None else _open(index, layer)
    embedder = model.load()
    occurrence = parse_query(query, embedder.tokenizer, embedder.language)
    if words is not None:
        [results] = words.nearest_neighbors(embedder, [occurrence], k=k)
    elif corpus is not None:
        lines = read_lines(corpus, replace_invalid=replace_invalid)
        lines = with_progress(lines, "sentences compared")
        layer = "top" if layer is None else layer
        [results] = nearest_neighbors(embedder, [occurrence], lines, k=k, layer=layer)
    if not results:
        name = index or corpus
        raise InputError(f"{name} has no words to compare; expected one sentence per line")
    rows = [f"       {occurrence}", *(f"{n.similarity:6.3f} {n.occurrence}" for n in results)]
    show([_to_json(*neighbor) for neighbor in results], "\n".join(rows), as_json=json_output)


def _open(index: Path, layer: str | int | None) -> "WordIndex":
    from elmore.errors import InputError
    from elmore.integrations.search import WordIndex

    words = WordIndex(index)
    if layer not in (None, words.layer):
        raise InputError(
            f"{index} has the vectors of layer {words.layer}, not {layer}; build another index"
        )
    return words


def _to_json(similarity: float, line: int, occurrence: "Occurrence") -> dict[str, str | float]:
    return {
        "similarity": similarity,
        "line": line,
        "word": occurrence.word,
        "sentence": str(occurrence),
    }
