"""What a run writes down about itself: its files, its epochs, its machine."""

import json
import platform
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elmore.atomic import atomic_file

RECORDS = "metrics.jsonl"


def file_identity(path: Path) -> dict[str, Any]:
    """Return what tells a file from another one, wherever it lies."""
    content = path.read_bytes()
    return {"name": path.name, "bytes": len(content), "crc32": zlib.crc32(content)}


def hardware_name(device: torch.device) -> str:
    """Return what a device is."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def write_json(path: Path, content: Any) -> None:
    """Write a file that people may read."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_records(folder: Path, epochs: int) -> list[dict[str, Any]]:
    """Return the records of the epochs that a resumed run builds on."""
    path = folder / RECORDS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines[:epochs]]


def write_records(folder: Path, records: Sequence[dict[str, Any]]) -> None:
    """Write a line for each epoch."""
    with atomic_file(folder / RECORDS) as temporary:
        lines = (json.dumps(record) + "\n" for record in records)
        temporary.write_text("".join(lines), encoding="utf-8")
