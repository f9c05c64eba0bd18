"""Peak memory of `elmore embed` as the file grows: it should not.

Run as: python benchmarks/memory.py [SENTENCES ...]
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import elmore
from elmore.checkpoint.directory import write_directory

CHILD = """
import resource, sys
from elmore.cli import main
try:
    main()
finally:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{kilobytes / 1024:.0f}", file=sys.stderr)
"""


def write_text(path: Path, sentences: int) -> None:
    """Write sentences of 5 to 35 words out of 50,000, the common ones more often."""
    draw = random.Random(0)
    words = [f"w{i:x}" for i in range(50_000)]
    weights = [1 / (i + 1) for i in range(len(words))]
    stock = draw.choices(words, weights, k=500_000)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(sentences):
            start = draw.randrange(len(stock) - 35)
            file.write(" ".join(stock[start : start + draw.randint(5, 35)]) + "\n")


def main() -> None:
    """Print one line a file."""
    torch.manual_seed(0)
    sizes = [int(arg) for arg in sys.argv[1:]] or [20_000, 200_000]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_directory(elmore.BiLM(elmore.BiLMConfig.tiny()), folder / "model")
        for sentences in sizes:
            write_text(folder / "text.txt", sentences)
            command = [
                sys.executable, "-c", CHILD, "embed", str(folder / "text.txt"),
                "-m", str(folder / "model"), "-o", str(folder / "v.parquet"), "--overwrite",
                "--layers", "top", "--dtype", "float16", "--tokenizer", "whitespace",
            ]  # fmt: skip
            began = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds = time.perf_counter() - began
            peak = done.stderr.split()[-1]
            print(f"{sentences:>9,} sentences  {seconds:6.0f} s  peak {peak} MB", flush=True)


if __name__ == "__main__":
    main()
