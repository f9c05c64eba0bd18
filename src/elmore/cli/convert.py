"""`elmore convert`: convert between released files and checkpoint directories."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import Output, Overwrite, Vocab
from elmore.schema import POSITIVE, check

Dtype = Literal["float32", "float16", "int8"]
_FILE_SUFFIXES = {
    ".bin", ".ckpt", ".gz", ".json", ".npz", ".onnx", ".pt", ".pth", ".safetensors", ".tar", ".tgz",
    ".txt", ".zip",
}  # fmt: skip


def convert(
    model: Path,
    options: Path | None = None,
    *,
    output: Output,
    vocab: Vocab = None,
    dtype: Dtype = "float32",
    softmax: Annotated[bool, Parameter(negative="--no-softmax")] = True,
    softmax_dtype: Dtype | None = None,
    max_file_mb: float | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert released ELMo files to an elmore directory, or a directory to released files.

    To a directory: `elmore convert weights.hdf5 options.json -o my-elmo`

    To released files: `elmore convert my-elmo -o weights.hdf5`

    Args:
        model: HDF5 weights, a directory, or an archive of either.
        options: options.json of HDF5 weights; by default the one next to them.
        output: Directory to write; or HDF5 file (.hdf5, .h5), with options.json next to it.
        dtype: Type of the weights in the directory; int8 has one scale per row of a matrix.
        softmax: Keep the softmax of a language model, which perplexity needs.
        softmax_dtype: Type of the softmax weights of a language model; --dtype by default.
        max_file_mb: Split weights into files of up to this many megabytes.
    """
    from elmore.atomic import lock, refuse_existing
    from elmore.checkpoint.directory import VOCABULARY, new_directory, write_directory
    from elmore.checkpoint.hdf5 import write_hdf5, written_by_elmore
    from elmore.checkpoint.pretrained import find_model, read_pretrained
    from elmore.checkpoint.released_options import OPTIONS
    from elmore.errors import InputError

    inputs = (find_model(model), options, vocab)
    if output.suffix in (".hdf5", ".h5"):
        if dtype != "float32" or softmax_dtype or max_file_mb is not None:
            raise InputError(
                "--dtype, --softmax-dtype and --max-file-mb are for directories; HDF5 weights are "
                "one file in float32"
            )
        options_output = output.with_name(OPTIONS)
        with lock(output):
            overwrite = overwrite and output.exists()  # else options.json belongs to other weights
            refuse = partial(
                refuse_existing, overwrite=overwrite, inputs=inputs, is_own=written_by_elmore
            )
            refuse(output)
            refuse(options_output)
            saved = read_pretrained(model, options=options, vocab=vocab)
            if saved.vocabulary is not None:
                refuse(output.with_name(VOCABULARY))
            write_hdf5(saved.bilm, output, options_output, saved.tokenization, saved.vocabulary)
        print(f"{output}, {options_output}")
        return
    if output.suffix in _FILE_SUFFIXES:
        raise InputError(f"{output}: expected a directory, or a name that ends in .hdf5 or .h5")
    check("--max-file-mb", max_file_mb, POSITIVE, optional=True)
    with new_directory(output, overwrite=overwrite, inputs=inputs) as folder:
        saved = read_pretrained(model, options=options, vocab=vocab, with_softmax=softmax)
        write_directory(
            saved.bilm,
            folder,
            vocabulary=saved.vocabulary,
            softmax=saved.softmax,
            provenance=saved.provenance,
            tokenization=saved.tokenization,
            dtype=dtype,
            softmax_dtype=softmax_dtype,
            max_file_bytes=None if max_file_mb is None else int(max_file_mb * 1e6),
        )
    print(output)
