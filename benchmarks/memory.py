"""Peak memory of `elmore embed` by length of the file and format. It should not depend on length.

Run as: python benchmarks/memory.py [SENTENCES ...] [--formats arrow ...] [-m MODEL] [-o memory.png]

The default is a tiny model with random weights, which is fast enough for long files.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import elmore
from elmore.checkpoint.directory import write_directory

COMMAND = """
import resource, sys
from elmore.cli import main
try:
    main()
finally:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{kilobytes / 1024:.0f}", file=sys.stderr)
"""


def write_text(path: Path, sentences: int) -> None:
    """Write sentences of 5 to 35 out of 50,000 words, with frequencies by Zipf's law."""
    rng = random.Random(0)
    words = [f"w{i:x}" for i in range(50_000)]
    weights = [1 / (i + 1) for i in range(len(words))]
    tokens = rng.choices(words, weights, k=500_000)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(sentences):
            start = rng.randrange(len(tokens) - 35)
            file.write(" ".join(tokens[start : start + rng.randint(5, 35)]) + "\n")


def embed(model: Path | str, text: Path, output: Path) -> tuple[float, int]:
    """Run `elmore embed` in a subprocess; return its duration in seconds and peak memory in MB."""
    command = [
        sys.executable, "-c", COMMAND, "embed", str(text), "-m", str(model), "-o", str(output),
        "--overwrite", "--layers", "top", "--dtype", "float16", "--tokenizer", "whitespace",
        "--device", "cpu",
    ]  # fmt: skip
    start = time.perf_counter()
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, int(result.stderr.split()[-1])


def plot(peaks: dict[str, dict[int, int]], path: Path) -> None:
    """Plot peak memory over the length of the file, with one line per format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    for suffix, points in peaks.items():
        axes.plot(list(points), list(points.values()), "o-", label=f".{suffix}")
    counts = list(next(iter(peaks.values())))
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.minorticks_off()
    axes.set_ylim(bottom=0, top=1.5 * max(max(points.values()) for points in peaks.values()))
    axes.set_xlabel("sentences in the file")
    axes.set_ylabel("peak memory, MB")
    axes.grid(alpha=0.3)
    axes.legend(ncols=len(peaks))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, print one line per file, and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=int, nargs="*", default=[2_000, 20_000, 200_000])
    parser.add_argument("--formats", nargs="+", default=["arrow", "parquet", "h5", "npz"])
    parser.add_argument("-m", "--model")
    parser.add_argument("-o", "--output", type=Path, default=Path("memory.png"))
    args = parser.parse_args()
    torch.manual_seed(0)
    peaks: dict[str, dict[int, int]] = {suffix: {} for suffix in args.formats}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.model is None:
            write_directory(elmore.BiLM(elmore.BiLMConfig.tiny()), folder / "model")
        model = args.model or folder / "model"
        for count in args.sentences:
            write_text(folder / "text.txt", count)
            for suffix in args.formats:
                seconds, peak = embed(model, folder / "text.txt", folder / f"v.{suffix}")
                peaks[suffix][count] = peak
                print(f"{count:>9,} sentences  .{suffix:8} {seconds:5.0f} s  peak {peak} MB")
                (folder / f"v.{suffix}").unlink()
    plot(peaks, args.output)


if __name__ == "__main__":
    main()
