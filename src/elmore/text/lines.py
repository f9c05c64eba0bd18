"""Files to lines of text: UTF-8, optionally compressed."""

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from elmore.errors import InputError

MAX_LINE = 1_000_000
"""Maximum bytes per line. A longer line is taken for a file without line breaks."""


def _open_zstandard(path: Path) -> io.BufferedReader:
    import pyarrow as pa  # includes a Zstandard decoder; Python before 3.14 has none

    return io.BufferedReader(pa.input_stream(path, compression="zstd"))


_DECOMPRESS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _open_zstandard,
}


def open_bytes(path: Path) -> AbstractContextManager[BinaryIO]:
    """Open a file for reading, decompressed according to its suffix.

    `-` is standard input, which stays open.
    """
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    return _DECOMPRESS[path.suffix](path) if path.suffix in _DECOMPRESS else path.open("rb")


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
            for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE + 2), b""), start=1):
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
            if path.suffix not in _DECOMPRESS:
                raise
            raise InputError(
                f"{path}, after line {number}: damaged {path.suffix} file ({error})"
            ) from error


def _decode(raw: bytes, path: Path, number: int, replace_invalid: bool) -> str:
    if replace_invalid:
        return raw.decode("utf-8", "replace").replace("\0", "\ufffd")
    try:
        line = raw.decode("utf-8")
        error = "NUL character; expected text" if "\0" in line else ""
    except UnicodeDecodeError as e:
        error = f"byte {raw[e.start]:#04x} at position {e.start} is not UTF-8"
    if error:
        raise InputError(
            f"{path}, line {number}: {error}. Convert the file to UTF-8 or, where the "
            "replace_invalid option is available, use it to replace invalid characters with U+FFFD."
        )
    return line
