"""A text file in, a file of vectors out."""

import re
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import elmore
from elmore.atomic import refuse_existing
from elmore.errors import InputError, warn_user
from elmore.progress import Progress, track
from elmore.text.lines import read_lines
from elmore.vectors.parts import Saved, check_output, write_vectors
from elmore.vectors.rows import Dtype, VectorForm, VectorRow

if TYPE_CHECKING:
    from elmore.embedder import Embedder
    from elmore.inference.batches import Embedded
    from elmore.inference.layers import Layers

_FASTA_NAME = re.compile(r"\.(fasta|fa|faa)(\.\w+)?$", re.IGNORECASE)
_EMPTY = "{} is empty; expected one sentence per line"


class EmbeddedFile(NamedTuple):
    """The file, its sentences, and the words and seconds of this run without earlier ones."""

    file: Path
    sentences: int
    words: int
    seconds: float


def embed_file(
    text: Path | str,
    output: Path | str,
    *,
    model: "Embedder | Path | str | None" = None,
    layers: "Layers" = "all",
    dtype: Dtype = "float32",
    carry_state: bool = False,
    replace_invalid: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **load_options: Any,
) -> EmbeddedFile:
    """Write the vectors of a text file, one sentence per line, to a file.

    Args:
        text: UTF-8, plain, .gz, .xz, .bz2 or .zst; `-` is standard input.
        output: File to write: .parquet, .arrow, .h5 or .hdf5 (the layout of AllenNLP's command),
            or .npz.
        model: What `load` takes, or an `Embedder`.
        layers: `all` layers, (J, W, D) for each sentence; `top`, `average`, `sum` or a layer
            number, (W, D).
        dtype: Type of the vectors in the file.
        carry_state: Start each sentence from the state at the end of the previous one, as bilm-tf
            does. Slower.
        replace_invalid: Replace invalid UTF-8 and NUL with U+FFFD.
        resume: Continue an interrupted run with the same text, weights and settings, if there is
            one. If it is complete, nothing is computed.
        overwrite: Replace an existing file that elmore wrote, or an interrupted run.
        progress: Shows progress: called with an iterable and a description, returns an iterable,
            like `tqdm.tqdm`. None shows nothing.
        load_options: The other arguments of `load`, such as `tokenizer` and `device`.
    """
    if not isinstance(text, str | PathLike):
        raise TypeError(
            f"expected the path of a text file, got {type(text).__name__}. To embed sentences, use "
            "elmore.load().embed(sentences)."
        )
    text, output = Path(text), Path(output)
    settings: dict[str, Any] = {
        "elmore_version": elmore.__version__,
        "layers": layers,
        "carry_state": carry_state,
        "replace_invalid": replace_invalid,
    }
    if resume and carry_state:
        raise InputError("carry_state rules out resume: an interrupted run does not save its state")
    _check_text(text)
    refuse_existing(output, overwrite=True, inputs=[text, *model_files(model, load_options)])
    check_output(output, settings, resume=resume, overwrite=overwrite)
    from elmore.embedder import get_embedder  # PyTorch, once the files are checked

    embedder = get_embedder(model, load_options)
    words, began = 0, time.monotonic()
    settings |= model_settings(embedder)

    def rows_after(saved: Saved) -> Iterator[tuple[VectorRow, Saved]]:
        nonlocal words
        first = saved.window_start
        text_crc32s: deque[int] = deque()
        lines = _lines_from_window(saved, text, text_crc32s, replace_invalid=replace_invalid)
        stream: Iterable[tuple[int, int, Embedded]]
        if carry_state:
            plain = embedder.stream(lines, layers=layers, carry_state=True, dtype=dtype)
            stream = ((index, 0, embedded) for index, embedded in enumerate(plain))
        else:
            skip = saved.rows - first
            stream = embedder.stream_windows(lines, layers=layers, dtype=dtype, skip=skip)
        shown = track(stream, "sentences embedded", progress)
        for index, window_start, (tokens, vectors) in shown:
            words += len(tokens)
            row = VectorRow(first + index, tokens, vectors)
            yield row, Saved(row.id + 1, text_crc32s.popleft(), first + window_start)

    sentences = write_vectors(
        output,
        rows_after,
        VectorForm(embedder.num_layers if layers == "all" else None, embedder.dim, dtype),
        settings=settings,
        resume=resume,
        overwrite=overwrite,
        progress=progress,
    )
    return EmbeddedFile(output, sentences, words, time.monotonic() - began)


def model_files(
    model: "Embedder | Path | str | None", load_options: Mapping[str, Any]
) -> list[Path | str]:
    """Return the files and folders that `load` would read, which no output may replace."""
    names = [model, *(load_options.get(name) for name in ("options", "vocab"))]
    return [name for name in names if isinstance(name, Path | str)]


def model_settings(embedder: "Embedder") -> dict[str, Any]:
    """Return what identifies a model by its values, and the settings that vectors depend on."""
    from elmore.checkpoint.hash import hash_json, hash_words  # PyTorch

    return {
        "weights_hash": embedder.weights_hash,
        "config_hash": hash_json(asdict(embedder.config)),
        "vocabulary_hash": embedder.vocabulary and hash_words(embedder.vocabulary),
        "tokenizer": embedder.tokenizer,
        "language": embedder.language,
        "precision": embedder.precision,
    }


def _check_text(text: Path) -> None:
    if str(text) == "-":
        return
    size = text.stat().st_size  # raises FileNotFoundError
    if text.is_dir():
        raise InputError(
            f"{text} is a directory; expected a text file. To embed its files as one: "
            f"cat {text}/*.txt | elmore embed - -o FILE"
        )
    if text.is_file() and size == 0:
        raise InputError(_EMPTY.format(text))
    if _FASTA_NAME.search(text.name):
        warn_user(
            f"{text} is embedded as text. If it holds proteins, use embed_fasta, or --format fasta "
            "on the command line",
        )


def _lines_from_window(
    saved: Saved, text: Path, text_crc32s: deque[int], *, replace_invalid: bool
) -> Iterator[str]:
    """Yield the lines from the start of the last window that was saved.

    For each line that is not saved, append the checksum of the text up to it.
    """
    lines = read_lines(text, replace_invalid=replace_invalid)
    window = []
    crc32 = 0
    for number, line in enumerate(islice(lines, saved.rows)):
        crc32 = zlib.crc32(f"{line}\n".encode(), crc32)
        if number >= saved.window_start:
            window.append(line)
    if crc32 != saved.text_crc32:
        raise InputError(
            f"the first {saved.rows:,} lines of {text} are not those that were embedded before. "
            "Resume with the same text, or use the overwrite option to start over."
        )
    yield from window
    empty = not saved.rows
    for line in lines:
        empty = False
        crc32 = zlib.crc32(f"{line}\n".encode(), crc32)
        text_crc32s.append(crc32)
        yield line
    if empty:
        raise InputError(_EMPTY.format("standard input" if str(text) == "-" else text))
