"""Checksums that detect damaged files."""

import zlib
from pathlib import Path
from typing import Any

_BYTES_AT_ONCE = 2**24


def file_crc32(path: Path) -> int:
    """Return the CRC-32 of a file, which is read piece by piece."""
    crc32 = 0
    with path.open("rb") as file:
        while data := file.read(_BYTES_AT_ONCE):
            crc32 = zlib.crc32(data, crc32)
    return crc32


def identify_file(path: Path) -> dict[str, Any]:
    """Return the name, the size and the CRC-32 of a file."""
    return {"name": path.name, "bytes": path.stat().st_size, "crc32": file_crc32(path)}
