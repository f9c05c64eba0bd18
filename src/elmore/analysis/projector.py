"""Words in context as the files that the Embedding Projector of TensorBoard reads."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elmore.analysis.neighbors import Occurrence
from elmore.atomic import atomic_folder, lock, refuse_existing
from elmore.embedder import Embedder, get_embedder
from elmore.errors import InputError
from elmore.inference.layers import check_layer
from elmore.progress import Progress, track
from elmore.schema import at_least, check
from elmore.text.lines import read_lines
from elmore.text.tokenize import get_tokenizer
from elmore.vectors.embed_file import model_files

VECTORS, METADATA, CONFIG = "vectors.tsv", "metadata.tsv", "projector_config.pbtxt"

# `tensorboard --logdir FOLDER` opens the files of this configuration.
_CONFIG = f"""\
embeddings {{
  tensor_name: "elmore"
  tensor_path: "{VECTORS}"
  metadata_path: "{METADATA}"
}}
"""


class ProjectorFiles(NamedTuple):
    """The folder, and the number of words in it."""

    folder: Path
    words: int


def export_projector(
    text: Path | str,
    output: Path | str,
    *,
    model: Embedder | Path | str | None = None,
    words: Iterable[str] = (),
    layer: Literal["top", "average"] | int = "top",
    max_words: int = 10_000,
    replace_invalid: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **load_options: Any,
) -> ProjectorFiles:
    """Write the vectors of the words of a text for the Embedding Projector.

    The folder has vectors.tsv, metadata.tsv with a word and its sentence for each vector, and the
    configuration of TensorBoard's projector.

    Args:
        text: UTF-8 text file, one sentence per line.
        output: Folder to write.
        model: What `elmore.load` takes, or an `Embedder`.
        words: Write only occurrences of these words; by default all words.
        layer: `top`, `average` or the index of a layer.
        max_words: Write up to this many occurrences, the first of the text.
        replace_invalid: Replace invalid UTF-8 and NUL with U+FFFD.
        overwrite: Replace a folder that this function wrote.
        progress: See `elmore.embed_file`.
        load_options: The other arguments of `elmore.load`.
    """
    text, output = Path(text), Path(output)
    check("max_words", max_words, at_least(1))
    inputs = [text, *model_files(model, load_options)]
    contents = (VECTORS, METADATA, CONFIG)
    with lock(output):
        refuse_existing(output, overwrite=overwrite, contents=contents, inputs=inputs)
        elmo = get_embedder(model, load_options)
        check_layer(layer, elmo.num_layers)
        tokenize = get_tokenizer(elmo.tokenizer, elmo.language)
        lines = map(tokenize, read_lines(text, replace_invalid=replace_invalid))
        wanted = frozenset(words)
        sentences = _with_words(lines, wanted, max_words)
        stream = elmo.stream(sentences, layers=layer)
        count = 0
        with atomic_folder(output) as folder, ExitStack() as files:
            (folder / CONFIG).write_text(_CONFIG, encoding="utf-8")
            vectors_tsv, metadata_tsv = (
                files.enter_context((folder / name).open("w", encoding="utf-8", newline="\n"))
                for name in (VECTORS, METADATA)
            )
            metadata_tsv.write("word\tsentence\n")
            for tokens, vectors in track(stream, "sentences", progress):
                for position in _positions(tokens, wanted)[: max_words - count]:
                    occurrence = Occurrence(tokens, position)
                    vectors_tsv.write("\t".join(f"{x:.6g}" for x in vectors[position]) + "\n")
                    metadata_tsv.write(f"{_cell(occurrence.word)}\t{_cell(str(occurrence))}\n")
                    count += 1
            if not count:
                missing = f"word {' or '.join(sorted(wanted))}" if wanted else "words"
                raise InputError(f"{text} has no {missing}; expected one sentence per line")
    return ProjectorFiles(output, count)


def _with_words(
    sentences: Iterable[list[str]], wanted: frozenset[str], max_words: int
) -> Iterator[list[str]]:
    """Yield sentences that have wanted words, until there are enough."""
    count = 0
    for tokens in sentences:
        if found := _positions(tokens, wanted):
            yield tokens
            count += len(found)
            if count >= max_words:
                return


def _positions(tokens: list[str], wanted: frozenset[str]) -> list[int]:
    return [i for i, token in enumerate(tokens) if not wanted or token in wanted]


def _cell(text: str) -> str:
    """Return a text as one cell: the format has no quotes."""
    return " ".join(text.split()).encode(errors="replace").decode()
