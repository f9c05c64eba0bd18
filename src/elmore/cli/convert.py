"""`elmore convert`: convert between released files and checkpoint directories."""

from pathlib import Path
from typing import Literal

from elmore.cli.options import Output, Overwrite, Vocab


def convert(
    model: Path,
    options: Path | None = None,
    *,
    output: Output,
    vocab: Vocab = None,
    dtype: Literal["float32", "float16"] = "float32",
    softmax_dtype: Literal["float32", "float16", "int8"] | None = None,
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
        dtype: Type of the weights in the directory.
        softmax_dtype: Type of the softmax weights of a language model; --dtype by default.
        max_file_mb: Split weights into files of up to this many megabytes.
    """
    from elmore.atomic import atomic_file, atomic_folder, refuse_existing
    from elmore.checkpoint.directory import VOCABULARY, write_directory
    from elmore.checkpoint.hdf5 import write_hdf5
    from elmore.checkpoint.pretrained import read_pretrained

    to_hdf5 = output.suffix in (".hdf5", ".h5")
    options_output, vocab_output = output.with_name("options.json"), output.with_name(VOCABULARY)
    for path in (output, options_output, vocab_output) if to_hdf5 else (output,):
        refuse_existing(path, overwrite=overwrite)
    bilm, vocabulary, provenance, softmax, _ = read_pretrained(
        model, options=options, vocab=vocab, with_softmax=not to_hdf5
    )
    if to_hdf5:
        if vocabulary is not None:
            with atomic_file(vocab_output) as temporary:
                vocabulary.write(temporary)
        write_hdf5(bilm, output, options_output)
        print(f"{output}, {options_output}")
        return
    with atomic_folder(output) as folder:
        write_directory(
            bilm,
            folder,
            vocabulary=vocabulary,
            softmax=softmax,
            provenance=provenance,
            dtype=dtype,
            softmax_dtype=softmax_dtype,
            max_file_bytes=None if max_file_mb is None else int(max_file_mb * 1e6),
        )
    print(output)
