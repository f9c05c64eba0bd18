"""`elmore export`: models and vectors for other programs, trained tasks as a package."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from elmore.cli.options import (
    DEFAULT_MODEL,
    REPEATED,
    SEVERAL,
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
    words: Annotated[tuple[str, ...], SEVERAL] = (),
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


def tasks(
    *runs: str,
    output: Output,
    license_file: Path,
    data: Annotated[tuple[str, ...], REPEATED] = (),
    evaluate: Annotated[tuple[str, ...], REPEATED] = (),
    max_words: int = 50_000,
    dtype: Literal["float32", "float16", "int8"] = "int8",
    device: str = "auto",
    json_output: Json = False,
) -> None:
    """Write trained tasks as a Python package, with fewer word vectors and compressed weights.

    Example: `elmore export tasks runs/ner runs/ner-baseline -o en-tasks --license-file LICENSES`

    Installed with pip, the tasks have the name of their biLM in front: `elmore predict en/ner`.
    The biLM must be an installed model.

    Args:
        runs: Folders written by `elmore train`. NAME=FOLDER sets the name of a task.
        output: Folder to write.
        license_file: Licenses of the training data and of the weights.
        data: Labeled file whose words keep their vectors, as in ner=train.conll; repeat for
            several.
        evaluate: Labeled file to score before and after, as in ner=test.conll; repeat for several
            tasks.
        max_words: Number of pretrained word vectors, the first ones of their file, unless --data
            has more words. Tasks that were trained with the same file as the first one share them.
        dtype: Type of weights and word vectors in the files; int8 has one scale per row of a
            matrix.
        device: Where to compute the scores: auto, cpu, cuda or cuda:NUMBER.
    """
    from elmore.server.setup import parse_names
    from elmore.tasks.package import package_tasks, parse_files

    packaged = package_tasks(
        parse_names(runs),
        output,
        license_file=license_file,
        data=parse_files(data),
        evaluate={kind: files[-1] for kind, files in parse_files(evaluate).items()},
        max_words=max_words,
        dtype=dtype,
        device=device,
    )
    lines = []
    for task in packaged:
        words = f"{task.words:,} of {task.words_before:,} words"
        line = f"{task.name}: {words}, {task.bytes / 1e6:.1f} MB"
        if task.score is not None and task.score_before is not None:
            line += f", {task.score_name} {100 * task.score_before:.2f} -> {100 * task.score:.2f}"
        lines.append(line)
    facts = {"folder": output, "tasks": [task._asdict() for task in packaged]}
    show(facts, "\n".join([*lines, str(output)]), as_json=json_output)
