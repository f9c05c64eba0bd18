"""`elmore export`: models and vectors for other programs."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import (
    DEFAULT_MODEL,
    Json,
    Language,
    ModelOptions,
    Output,
    Overwrite,
    ReplaceInvalid,
    Text,
    Tokenizer,
    Vocab,
)
from elmore.cli.show import count, show


def onnx(
    model: Path | None = None,
    options: Path | None = None,
    *,
    output: Output,
    vocab: Vocab = None,
    tokenizer: Tokenizer = None,
    language: Language = None,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Write a model as an ONNX file, for ONNX Runtime and other inference engines.

    Example: `elmore export onnx my-elmo -o elmo.onnx`

    The input `ids` and the outputs `layers` and `mask` have dynamic batch size and length.

    Args:
        model: Name of an installed model, a directory, HDF5 weights, or an archive of either; by
            default en, the included English model.
        options: options.json of HDF5 weights; by default the one next to them.
        output: File to write, with the suffix .onnx.
    """
    from elmore.integrations.onnx import export

    exported = export(
        output,
        model,
        options=options,
        vocab=vocab,
        tokenizer=tokenizer,
        language=language,
        overwrite=overwrite,
    )
    show(exported, f"{exported.file} ({exported.bytes / 1e6:,.1f} MB)", as_json=json_output)


def projector(
    text: Text,
    *,
    output: Output,
    words: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True)] = (),
    layer: Literal["top", "average"] | int = "top",
    max_words: int = 10_000,
    model: ModelOptions = DEFAULT_MODEL,
    replace_invalid: ReplaceInvalid = False,
    overwrite: Overwrite = False,
    json_output: Json = False,
) -> None:
    """Write the words of a text in context for the Embedding Projector of TensorBoard.

    Example: `elmore export projector news.txt -o projector/ --words play plays`

    Then run `tensorboard --logdir projector/`, or load vectors.tsv and metadata.tsv on
    projector.tensorflow.org.

    Args:
        output: Folder to write.
        words: Only occurrences of these words; by default all words.
        layer: The top layer, the average of all, or one by its number.
        max_words: Write up to this many occurrences, the first of the text.
    """
    from elmore.analysis.projector import export_projector
    from elmore.progress import with_progress

    files = export_projector(
        text,
        output,
        **asdict(model),
        words=words,
        layer=layer,
        max_words=max_words,
        replace_invalid=replace_invalid,
        overwrite=overwrite,
        progress=with_progress,
    )
    show(files, f"{count(files.words, 'word')} -> {files.folder}", as_json=json_output)
