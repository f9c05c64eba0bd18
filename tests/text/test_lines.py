"""Reading text files. Oracle: the written lines."""

import bz2
import gzip
import io
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from elmore.errors import InputError
from elmore.text import lines
from elmore.text.lines import read_lines

TEXT = "first\n\nthird \u00e9\r\nlast without a line break"
EXPECTED = ["first", "", "third \u00e9", "last without a line break"]


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("t.txt", bytes),
        ("t.gz", gzip.compress),
        ("t.xz", lzma.compress),
        ("t.bz2", bz2.compress),
        ("t.zst", lambda raw: pa.compress(raw, "zstd", asbytes=True)),
    ],
)
def test_plain_and_compressed_files_are_read(tmp_path: Path, name: str, compress) -> None:
    (tmp_path / name).write_bytes(compress(TEXT.encode()))
    assert list(read_lines(tmp_path / name)) == EXPECTED


def test_standard_input_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: a second read, which finds the end of the file instead of raising an error."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert list(read_lines(Path("-"))) == EXPECTED
    assert list(read_lines(Path("-"))) == []


def test_byte_order_mark_is_removed(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("a\nb".encode("utf-8-sig"))
    assert list(read_lines(tmp_path / "t.txt")) == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"fine\nbad \xff byte\n", r"t.txt, line 2: byte 0xff at position 4 is not UTF-8"),
        (b"fine\nfine\nbad \0 too\n", r"t.txt, line 3: NUL character"),
    ],
)
def test_invalid_text_is_rejected_with_its_line(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "t.txt").write_bytes(raw)
    with pytest.raises(InputError, match=message + ".*replace_invalid"):
        list(read_lines(tmp_path / "t.txt"))


def test_replace_invalid_replaces_invalid_bytes_and_nul(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"a\xffb\nc\0d")
    assert list(read_lines(tmp_path / "t.txt", replace_invalid=True)) == ["a\ufffdb", "c\ufffdd"]


def test_too_long_line_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 10)
    (tmp_path / "t.txt").write_bytes(b"0123456789\n" + b"x" * 1000)
    remaining = read_lines(tmp_path / "t.txt")
    assert next(remaining) == "0123456789"
    with pytest.raises(InputError, match="line 2: more than 10 bytes without a line break"):
        next(remaining)


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("t.gz", gzip.compress),
        ("t.xz", lzma.compress),
        ("t.bz2", bz2.compress),
        ("t.zst", lambda raw: pa.compress(raw, "zstd", asbytes=True)),
    ],
)
def test_truncated_compressed_file_is_rejected(tmp_path: Path, name: str, compress) -> None:
    intact = compress("".join(f"line {i}\n" for i in range(10_000)).encode())
    (tmp_path / name).write_bytes(intact[: len(intact) // 2])
    with pytest.raises(InputError, match=rf"{name}, after line \d+: damaged"):
        list(read_lines(tmp_path / name))
