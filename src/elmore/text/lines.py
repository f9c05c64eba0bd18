"""Files to lines of text: UTF-8, optionally compressed."""

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from elmore.errors import InputError

MAX_LINE = 1_000_000
"""Maximum bytes per line. A longer line is taken for a file without line breaks."""

_OPENERS: dict[str, Callable[[Path], object]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": lambda path: _open_zstandard(path),
}


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed according to its suffix; `-` is standard input."""
    if str(path) == "-":
        return sys.stdin.buffer
    return cast("BinaryIO", _OPENERS.get(path.suffix, _open_plain)(path))


def _open_zstandard(path: Path) -> BinaryIO:
    import pyarrow as pa  # includes a Zstandard decoder; Python before 3.14 has none

    return io.BufferedReader(pa.input_stream(path, compression="zstd"))


def _open_plain(path: Path) -> BinaryIO:
    return path.open("rb")


def read_lines(path: Path, *, replace_invalid: bool = False) -> Iterator[str]:
    """Yield the lines of a file without line endings, reading one line at a time.

    Args:
        path: Text file, optionally `.gz`, `.xz`, `.bz2` or `.zst`; `-` is standard input.
        replace_invalid: Replace invalid UTF-8 and NUL with U+FFFD instead of raising an error.

    Raises:
        InputError: If a line is too long or not valid text, or the compressed file is damaged.
    """
    with open_bytes(path) as file:
        number = 0
        try:
            while raw := file.readline(MAX_LINE + 2):
                number += 1
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                raw = raw.rstrip(b"\r\n")
                if len(raw) > MAX_LINE:
                    raise InputError(
                        f"{path}, line {number}: more than {MAX_LINE:,} bytes without a line "
                        "break; expected one sentence or paragraph per line. Add line breaks."
                    )
                yield _decode(raw, path, number, replace_invalid)
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            if path.suffix not in _OPENERS:
                raise
            raise InputError(
                f"{path}, after line {number}: damaged {path.suffix} file ({error})"
            ) from error


def _decode(raw: bytes, path: Path, number: int, replace_invalid: bool) -> str:
    if replace_invalid:
        return raw.decode("utf-8", "replace").replace("\0", "\ufffd")
    hint = (
        "Convert the file to UTF-8 or, where the replace_invalid option is available, use it to "
        "replace invalid characters with U+FFFD."
    )
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}, line {number}: byte {raw[error.start]:#04x} at position {error.start} "
            f"is not UTF-8. {hint}"
        ) from error
    if "\0" in line:
        raise InputError(f"{path}, line {number}: NUL character; expected text. {hint}")
    return line
