"""Startup time: import, --help, and loading a model of the original size.

Run as: python benchmarks/startup.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import elmore
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.hdf5 import write_hdf5


def seconds_to_run(command: list[str]) -> float:
    """Return the duration of a command, the fastest of five runs."""

    def once() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start

    return min(once() for _ in range(5))


def seconds_to_load(path: Path) -> float:
    """Return the duration of `elmore.load`, the fastest of five calls, with the file in memory."""

    def once() -> float:
        start = time.perf_counter()
        elmore.load(path, device="cpu")
        return time.perf_counter() - start

    return min(once() for _ in range(5))


def main() -> None:
    """Print one line per measurement."""
    python = sys.executable
    print(f"python -c pass        {seconds_to_run([python, '-c', 'pass']):.2f} s")
    print(f"import elmore         {seconds_to_run([python, '-c', 'import elmore']):.2f} s")
    print(f"import torch          {seconds_to_run([python, '-c', 'import torch']):.2f} s")
    help_ = [python, "-c", "from elmore.cli import app; app(['--help'])"]
    print(f"elmore --help         {seconds_to_run(help_):.2f} s")
    torch.manual_seed(0)
    bilm = elmore.BiLM(elmore.BiLMConfig.original())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_directory(bilm, folder / "f32")
        write_directory(bilm, folder / "f16", dtype="float16")
        write_hdf5(bilm, folder / "h5" / "weights.hdf5", folder / "h5" / "options.json")
        for kind in ("f32", "f16", "h5"):
            print(f"load original, {kind:4}   {seconds_to_load(folder / kind):.2f} s")


if __name__ == "__main__":
    main()
