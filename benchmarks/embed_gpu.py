"""Words per second on one GPU: from a text file to arrays and files, and in a PyTorch module.

The weights are random. Unless `--text` names a file, the text consists of random words with
frequencies by Zipf's law, about 25 per sentence. Boundary tokens are not counted. Every section
starts with an empty word cache. Arrays are measured after warm-up batches, which compile kernels,
capture CUDA graphs and allocate pinned memory. This takes a few seconds once per process.

Run as: python benchmarks/embed_gpu.py [--size original] [--words 2000000] [--text FILE]
            [--folder DIR] [--only SECTION ...] [--device cpu]
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

import elmore
from elmore.checkpoint.hdf5 import write_hdf5
from elmore.compat import allennlp
from elmore.embedder import Embedder

WARM_UP_LINES = 24_000  # ten batches
FILE_LINES = 80_000  # 12 GB of vectors in float16 at the original size
BATCHES = 40  # of the `modules` section


class Bench:
    """A model with random weights, a text, and one method for each section."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.device = torch.device(args.device)
        self.folder = folder
        self.text = args.text or write_text(folder / "text.txt", args.words)
        torch.manual_seed(0)
        self.bilm = elmore.BiLM(getattr(elmore.BiLMConfig, args.size)()).eval()
        self.embedders: dict[str, Embedder] = {}

    def embedder(self, precision: str) -> Embedder:
        """Return an embedder with an empty word cache."""
        if precision not in self.embedders:
            self.embedders[precision] = Embedder(
                self.bilm, device=self.device, precision=precision, tokenizer="whitespace"
            )
        self.embedders[precision]._runner.words.clear()
        return self.embedders[precision]

    def lines(self, count: int | None = None) -> Iterator[str]:
        """Yield the first lines of the text."""
        with self.text.open(encoding="utf-8") as file:
            yield from islice(file, count)

    def seconds(self, call: Callable[[], object]) -> float:
        """Return the duration of a call, including its kernels."""
        self.wait()
        start = time.perf_counter()
        call()
        self.wait()
        return time.perf_counter() - start

    def wait(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def vectors(self) -> None:
        """Print how close the vectors are to those of a CPU."""
        sentences = [line.split() for line in self.lines(20)]
        expected = Embedder(self.bilm, device="cpu").embed(sentences)
        for precision in ("fp32", "bf16"):
            vectors = self.embedder(precision).embed(sentences)
            pairs = list(zip(vectors, expected, strict=True))
            error = max(float(np.abs(a - b).max()) for a, b in pairs)
            cosine = min(float(cosines(a, b).min()) for a, b in pairs)
            print(
                f"{precision} and fp32 on a CPU: lowest cosine {cosine:.6f}, max. error {error:.1e}"
            )

    def arrays(self) -> None:
        """Measure `Embedder.stream` in bf16 with float16 vectors, three times."""
        embedder = self.embedder("bf16")
        for _ in embedder.stream(self.lines(WARM_UP_LINES), dtype="float16"):
            pass
        for _ in range(3):
            embedder = self.embedder("bf16")
            words = 0
            start = time.perf_counter()
            for tokens, _ in embedder.stream(self.lines(), dtype="float16"):
                words += len(tokens)
            report("file to arrays, bf16", words, time.perf_counter() - start)
        if self.device.type == "cuda":
            reserved = torch.cuda.max_memory_reserved() / 2**30
            print(f"    {reserved:.1f} GiB of GPU memory reserved")

    def modules(self) -> None:
        """Compare `embed` with the PyTorch modules in fp32, with batches of two sizes."""
        embedder = self.embedder("fp32")
        elmo = elmore.Elmo(self.bilm, dropout=0.0).to(self.device)
        weights, options = self.folder / "weights.hdf5", self.folder / "options.json"
        write_hdf5(self.bilm, weights, options)
        compat = allennlp.Elmo(options, weights, 1, dropout=0.0).to(self.device)
        sentences = [line.split() for line in self.lines(BATCHES * 256)]
        programs: dict[str, Callable[[list[list[str]]], object]] = {
            "Embedder.embed": embedder.embed,
            "elmore.Elmo": lambda batch: elmo(embedder.encode(batch)),
            "compat.allennlp.Elmo": lambda batch: compat(
                allennlp.batch_to_ids(batch).to(self.device)
            ),
        }
        for size in (64, 256):
            batches = [sentences[i * size : (i + 1) * size] for i in range(BATCHES)]
            count = sum(len(s) for batch in batches for s in batch)
            speeds: dict[str, float] = {}
            for name, run in programs.items():
                call = partial(run_all, run, batches)
                seconds = [self.seconds(call) for _ in range(3)]
                speeds[name] = count / min(seconds[1:])  # the first run is a warm-up
                ratio = speeds[name] / speeds["Embedder.embed"]
                report(f"{name}, {size} sentences, fp32", count, min(seconds[1:]), f"x{ratio:.2f}")

    def files(self, suffix: str) -> None:
        """Measure `elmore.embed_file` in bf16 with float16 vectors, twice."""
        text = self.folder / "lines.txt"
        text.write_text("".join(self.lines(FILE_LINES)), encoding="utf-8")
        path = self.folder / f"vectors{suffix}"
        for run in ("first", "second"):
            embedder = self.embedder("bf16")
            result = elmore.embed_file(text, path, model=embedder, dtype="float16", overwrite=True)
            size = path.stat().st_size
            details = f"{size / 1e9:.1f} GB, {size / result.seconds / 1e9:.2f} GB/s, {run} file"
            report(f"file to {suffix}, bf16", result.words, result.seconds, details)
            path.unlink()

    def plain(self) -> None:
        """Measure the speed of plain writes to the disk."""
        block, path = np.ones(2**24, dtype=np.uint8), self.folder / "plain"
        for _ in range(2):
            start = time.perf_counter()
            with path.open("wb", buffering=0) as file:
                for _ in range(512):
                    file.write(block)
            print(f"plain writes: {2**33 / (time.perf_counter() - start) / 1e9:.2f} GB/s")
            path.unlink()

    def long(self) -> None:
        """Measure one sentence of 100,000 words."""
        sentence = [f"word{i % 1000}" for i in range(100_000)]
        seconds = self.seconds(lambda: self.embedder("bf16").embed([sentence], dtype="float16"))
        print(f"one sentence of 100,000 words: {seconds:.1f} s")


def run_all(run: Callable[[list[list[str]]], object], batches: list[list[list[str]]]) -> None:
    """Call a function with every batch."""
    for batch in batches:
        run(batch)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of vectors."""
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def report(name: str, words: int, seconds: float, details: str = "") -> None:
    """Print the speed of one measurement."""
    print(f"{name:44}{words / seconds:12,.0f} words/s  {details}", flush=True)


def write_text(path: Path, num_words: int) -> Path:
    """Write sentences of random words with frequencies by Zipf's law."""
    rng = np.random.default_rng(0)
    vocabulary = 200_000
    frequency = (np.arange(vocabulary) + 2.7) ** -1.2
    ends = np.cumsum(1 + rng.poisson(0.9 * np.log(np.arange(vocabulary) + 2)))
    letters = rng.integers(ord("a"), ord("z") + 1, ends[-1], dtype=np.uint8).tobytes().decode()
    words = np.array([letters[a:b] for a, b in zip([0, *ends], ends, strict=False)])
    lengths = np.maximum(1, rng.gamma(3.5, 7, num_words // 24)).astype(int)
    ranks = np.searchsorted(np.cumsum(frequency / frequency.sum()), rng.random(lengths.sum()))
    text = iter(words[np.minimum(ranks, vocabulary - 1)].tolist())
    with path.open("w", encoding="utf-8") as file:
        for length in lengths.tolist():
            file.write(" ".join(islice(text, length)) + "\n")
    return path


def main() -> None:
    """Run the selected sections."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="original")
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--text", type=Path)
    parser.add_argument(
        "--folder", type=Path, help="where to write files: a folder on the disk to measure"
    )
    parser.add_argument("--only", nargs="+", help="sections to run (default: all)")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bench = Bench(args, Path(folder))
        sections: dict[str, Callable[[], None]] = {
            "vectors": bench.vectors,
            "arrays": bench.arrays,
            "modules": bench.modules,
            "plain": bench.plain,
            "arrow": lambda: bench.files(".arrow"),
            "parquet": lambda: bench.files(".parquet"),
            "h5": lambda: bench.files(".h5"),
            "npz": lambda: bench.files(".npz"),
            "long": bench.long,
        }
        for name in args.only or sections:
            sections[name]()


if __name__ == "__main__":
    main()
