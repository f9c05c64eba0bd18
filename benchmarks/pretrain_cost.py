"""Duration and peak memory of `elmore pretrain` by length of the text.

The duration should be linear in the length of the text, and memory constant.

Run as: python benchmarks/pretrain_cost.py [SENTENCES ...]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory import COMMAND, write_text


def main() -> None:
    """Print two lines per text: duration and memory, and the result of the run."""
    sizes = [int(arg) for arg in sys.argv[1:]] or [5_000, 50_000]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for sentences in sizes:
            text = folder / f"{sentences}.txt"
            write_text(text, sentences)
            command = [
                sys.executable, "-c", COMMAND, "pretrain", str(text), "-o", str(folder / "run"),
                "--overwrite", "--size", "tiny", "--cache", str(folder / "cache"),
                "--device", "cpu", "--workers", "1",
                "--set", "training.streams=128", "--set", "training.negatives=256",
                "--set", "text.sentences=lines", "--set", "text.tokenizer=whitespace",
                "--set", "vocabulary.max_size=5000", "--set", "run.evaluations=1",
            ]  # fmt: skip
            start = time.perf_counter()
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds = time.perf_counter() - start
            peak = result.stderr.split()[-1]
            print(f"{sentences:>9,} sentences  {seconds:6.0f} s  peak {peak} MB", flush=True)
            print(f"           {result.stdout.splitlines()[-1].split(' -> ')[0]}", flush=True)


if __name__ == "__main__":
    main()
