"""`elmore convert`: released files to an elmore folder, and back."""

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
    """Convert released ELMo files to an elmore folder, or a folder to released files.

    Examples:
        elmore convert weights.hdf5 options.json -o my-elmo

        elmore convert my-elmo -o weights.hdf5

    Args:
        model: HDF5 weights, a folder, or an archive of either.
        options: options.json of HDF5 weights, if it is not beside them.
        output: A folder; or a name that ends in .hdf5, with options.json written beside it.
        dtype: Type of the weights in an elmore folder.
        softmax_dtype: Type of the rows of its softmax, if another.
        max_file_mb: Write weights that take more megabytes to several files.
    """
    from elmore.atomic import atomic_file, refuse_existing
    from elmore.checkpoint.directory import VOCABULARY, write_directory
    from elmore.checkpoint.hdf5 import write_hdf5
    from elmore.checkpoint.pretrained import read_pretrained

    to_hdf5 = output.suffix in (".hdf5", ".h5")
    beside = output.with_name("options.json")
    refuse_existing(output, overwrite=overwrite)
    if to_hdf5:
        refuse_existing(beside, overwrite=overwrite)
    bilm, vocabulary, provenance, softmax = read_pretrained(
        model, options=options, vocab=vocab, with_softmax=not to_hdf5
    )
    if to_hdf5:
        if vocabulary is not None:
            words = output.with_name(VOCABULARY)
            refuse_existing(words, overwrite=overwrite)
            with atomic_file(words) as temporary:
                vocabulary.write(temporary)
        write_hdf5(bilm, output, beside)
        print(f"{output}, {beside}")
    else:
        write_directory(
            bilm,
            output,
            vocabulary=vocabulary,
            softmax=softmax,
            provenance=provenance,
            dtype=dtype,
            softmax_dtype=softmax_dtype,
            max_file_bytes=None if max_file_mb is None else int(max_file_mb * 1e6),
        )
        print(output)
