"""A text file in, a file of vectors out."""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from elmore.errors import InputError
from elmore.text.lines import read_lines
from elmore.text.tokenize import TokenizerName, get_tokenizer
from elmore.vectors.parts import Progress, check_output, write_vectors
from elmore.vectors.rows import Dtype, VectorForm, VectorRow

if TYPE_CHECKING:
    import torch

    from elmore.embedder import Embedder, Layers, Precision


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
    options: Path | str | None = None,
    vocab: Path | str | None = None,
    tokenizer: TokenizerName = "moses",
    language: str = "en",
    device: "str | torch.device" = "auto",
    precision: "Precision" = "fp32",
    layers: "Layers" = "all",
    dtype: Dtype = "float32",
    carry_state: bool = False,
    replace_invalid: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> EmbeddedFile:
    """Write the vectors of a text file, one sentence per line, to a file.

    Args:
        text: UTF-8, plain, .gz, .xz, .bz2 or .zst; `-` is standard input.
        output: File to write: .parquet, .arrow, .h5 or .hdf5 (the layout of AllenNLP's command),
            or .npz.
        model: What `load` takes, or an `Embedder`, which has its own tokenizer, device and
            precision. Of an `Embedder`, a resumed run can check only the sizes.
        options: See `load`.
        vocab: See `load`.
        tokenizer: See `load`.
        language: See `load`.
        device: See `load`.
        precision: See `load`.
        layers: `all` layers, (J, W, D) for each sentence; `top`, `average` or a layer number,
            (W, D).
        dtype: Type of the vectors in the file.
        carry_state: Start each sentence from the state at the end of the previous one, as bilm-tf
            does. Slower.
        replace_invalid: Replace bytes that are not UTF-8 by U+FFFD.
        resume: Continue an interrupted run with the same settings, if there is one.
        overwrite: Replace an existing file or interrupted run.
        progress: Shows progress: called with an iterable and a description, returns an iterable,
            like `tqdm.tqdm`.
    """
    text, output = Path(text), Path(output)
    loading: dict[str, Any] = {
        "options": options,
        "vocab": vocab,
        "tokenizer": tokenizer,
        "language": language,
        "device": device,
        "precision": precision,
    }
    settings = {
        **_identify_text(text),
        **_identify_model(model, loading),
        "layers": layers,
        "carry_state": carry_state,
        "replace_invalid": replace_invalid,
    }
    _check(layers, dtype, resume=resume, carry_state=carry_state)
    check_output(output, settings, resume=resume, overwrite=overwrite)
    if isinstance(model, Path | str | None):
        from elmore.embedder import load  # PyTorch: only once the request is known to be valid

        model = load(model, **loading)
    embedder, words, began = model, 0, time.monotonic()

    def rows_from(start: int) -> Iterator[VectorRow]:
        nonlocal words
        lines = islice(read_lines(text, replace_invalid=replace_invalid), start, None)
        stream = embedder.stream(lines, layers=layers, carry_state=carry_state, dtype=dtype)
        shown = stream if progress is None else progress(stream, "sentences embedded")
        for number, (tokens, vectors) in enumerate(shown, start):
            words += len(tokens)
            yield VectorRow(number, tokens, vectors)

    sentences = write_vectors(
        output,
        rows_from,
        VectorForm(embedder.num_layers if layers == "all" else None, embedder.dim, dtype),
        settings=settings,
        resume=resume,
        overwrite=overwrite,
        progress=progress,
    )
    return EmbeddedFile(output, sentences, words, time.monotonic() - began)


def _check(layers: "Layers", dtype: Dtype, *, resume: bool, carry_state: bool) -> None:
    """Raise if something is wrong that can be known without the model."""
    if resume and carry_state:
        raise InputError("carry_state rules out resume: an interrupted run does not save its state")
    if layers not in ("all", "top", "average") and (type(layers) is not int or layers < 0):
        raise InputError(f"layers must be all, top, average or a layer number, got {layers!r}")
    if dtype not in get_args(Dtype):
        raise InputError(f"dtype must be {' or '.join(get_args(Dtype))}, got {dtype!r}")


def _identify_text(text: Path) -> dict[str, Any]:
    """Return what distinguishes this text from another, without reading it."""
    if str(text) == "-":
        return {"text": "-"}
    about = text.stat()
    if text.is_dir():
        raise InputError(f"{text} is a directory; expected a text file")
    if text.is_file() and about.st_size == 0:
        raise InputError(f"{text} is empty; expected one sentence per line")
    return {"text": str(text.resolve()), "bytes": about.st_size, "modified": about.st_mtime_ns}


def _identify_model(
    model: "Embedder | Path | str | None", loading: dict[str, Any]
) -> dict[str, Any]:
    """Return what distinguishes this model from another, without loading it."""
    if not isinstance(model, Path | str | None):
        defaults = embed_file.__kwdefaults__ or {}
        if given := [name for name, value in loading.items() if value != defaults[name]]:
            raise InputError(f"an Embedder is loaded already; pass {', '.join(given)} to load")
        return {"model": "an Embedder"}
    get_tokenizer(loading["tokenizer"], loading["language"])  # raises if it does not exist
    files = {"model": model, "options": loading["options"], "vocab": loading["vocab"]}
    return {
        **{name: _absolute(file) for name, file in files.items()},
        **{name: loading[name] for name in ("tokenizer", "language", "precision")},
    }


def _absolute(file: Path | str | None) -> str | None:
    if file is None:
        return None
    return str(Path(file).resolve() if Path(file).exists() else file)  # or the name of a model
