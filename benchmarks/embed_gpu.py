"""Words a second from a text file to vectors, on one GPU, and where the time goes.

The weights are random, the text is made up unless one is given: Zipf's law, 25 words a sentence.
Every number is of whole words, without the marks around a sentence. Files are written to a folder
on a disk, beside a plain write of as many bytes.

Run as: python benchmarks/embed_gpu.py [--size original] [--words 2000000] [--text FILE]
            [--folder DIR] [--only SECTION ...] [--device cpu]
"""

import argparse
import os
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmore import batches, transfer
from elmore.bilm import streams, word_table
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.streams import StreamedBiLM, pack
from elmore.bilm.word_table import WordTable
from elmore.embedder import Embedded, Embedder
from elmore.text.lines import read_lines
from elmore.transfer import Fetcher
from elmore.vectors import disk, parquet
from elmore.vectors.formats import HDF5Writer
from elmore.vectors.parquet import ParquetWriter
from elmore.vectors.parts import write_vectors
from elmore.vectors.rows import VectorForm, VectorRow

BEGAN = time.perf_counter()
MEMORY = Path("/dev/shm")
SHORT = ["same", "machine", "host", "bf16", "arrays", "parquet", "hdf5"]  # about a minute
LINES_WARM = 9000  # three batches and a short one: compile, record, pin memory
LINES_TO_FILE = 80_000  # 12 GB in float16: two dozen batches and more


def say(text: str) -> None:
    """Print a line at once, with the seconds since the start."""
    print(f"[{time.perf_counter() - BEGAN:5.1f} s] {text}", flush=True)


class Bench:
    """A model, a text, and the ways to measure them."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.device = torch.device(args.device)
        self.folder = folder
        self.text = args.text or write_text(folder / "text.txt", args.words)
        torch.manual_seed(0)
        self.bilm = BiLM(getattr(BiLMConfig, args.size)()).eval()
        self.num_words = sum(len(line.split()) for line in read_lines(self.text))
        self.peak = self.measure_peak()
        self.device_us = 0.0  # a word, on the device alone
        self.embedders: dict[str, Embedder] = {}
        say(
            f"{args.size}, {self.num_words:,} words in {self.text.stat().st_size / 1e6:.0f} MB, "
            f"a bf16 product runs at {self.peak / 1e12:.0f} TFLOP/s"
        )

    def embedder(self, precision: str) -> Embedder:
        """Return an embedder of the model, which keeps what it has recorded."""
        if precision not in self.embedders:
            self.embedders[precision] = Embedder(
                self.bilm, device=str(self.device), precision=precision, tokenizer="whitespace"
            )
        return self.embedders[precision]

    def wait(self) -> None:
        """Wait until the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, call: Callable[[], object], times: int = 1) -> float:
        """Return the mean time of a call."""
        self.wait()
        began = time.perf_counter()
        for _ in range(times):
            call()
        self.wait()
        return (time.perf_counter() - began) / times

    def measure_peak(self) -> float:
        """Return the operations a second of a large bf16 product."""
        n = 8192 if self.device.type == "cuda" else 256
        a, b = (torch.randn(n, n, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        self.seconds(lambda: a @ b, 3)
        return 2 * n**3 / self.seconds(lambda: a @ b, 20)

    def report(self, name: str, words: int, seconds: float, *, extra: str = "") -> None:
        """Print words a second, and the share of the matrix peak that they are."""
        config = self.bilm.config
        D, H = config.dim, config.cell_dim
        operations = 2 * 2 * config.num_layers * (2 * D * 4 * H + H * D)  # of a word's products
        share = operations * words / seconds / self.peak
        say(f"{name:42} {words / seconds:12,.0f} words/s  {share:4.0%} of the peak  {extra}")

    # Sections, in the order in which they run.

    def machine(self) -> None:
        """What the machine can do at best: copies and the disk."""
        if self.device.type == "cuda":
            pinned = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
            there = torch.empty(2**28, dtype=torch.uint8, device=self.device)
            took = self.seconds(lambda: pinned.copy_(there, non_blocking=True), 8)
            say(f"device to pinned memory {2**28 / took / 1e9:6.1f} GB/s")
            with Fetcher() as fetcher:
                there = torch.zeros(2**29, dtype=torch.float16, device=self.device)
                for _ in range(2):
                    took = self.seconds(lambda: fetcher.start(there).result())
                    say(f"device to an array        {2**30 / took / 1e9:6.1f} GB/s")
        for folder in self.folders():
            for what, write in (
                ("one thread", write_plainly),
                ("one thread again", write_plainly),
                ("4 threads, one file", write_by_threads),
                ("4 threads, 4 files", write_files),
            ):
                took = self.seconds(lambda w=write, f=folder: w(f / "plain", 2**30))
                say(f"1 GB to {folder}, {what:20} {2**30 / took / 1e9:6.2f} GB/s")
                for path in folder.glob("plain*"):
                    path.unlink()

    def folders(self) -> list[Path]:
        """Where files are written: a disk, and memory where there is enough of such a folder."""
        in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4e9
        return [self.folder, *([MEMORY] if in_memory else [])]

    def host(self) -> None:
        """What the host does for every batch, without a device, in seconds of the processor."""
        embedder = self.embedder("fp32")
        times: dict[str, float] = defaultdict(float)
        of_device = word_table._WORDS, word_table._ENCODED_AT_ONCE
        before = [sizes["cpu"] for sizes in of_device]
        for sizes in of_device:
            sizes["cpu"] = sizes["cuda"]
        nothing = _Nothing(BiLM(BiLMConfig.tiny()))  # here, wherever the model is
        words = WordTable(nothing, embedder._encode_words, torch.device("cpu"))
        began = last = time.thread_time()
        filled = []

        def lap(name: str) -> None:
            nonlocal last
            now = time.thread_time()
            times[name] += now - last
            last = now

        for some in batches._flat_windows(embedder._tokenize(read_lines(self.text)), 65_536):
            lap("lines and tokens")
            rows = words(["<S>", "</S>", *some.words])
            lap("rows and characters")
            found = pack(rows[2:], some.lengths, bos=0, eos=1)
            filled.append(2 * len(rows) / found.words.size)
            lap("streams")
            copied: Future[np.ndarray] = Future()
            copied.set_result(np.empty((3, len(some.words), 1024), dtype=np.float16))
            for _ in map(Embedded, *batches._finish(some, copied.result().shape, copied)):
                pass
            lap("results")
        took = time.thread_time() - began
        for sizes, size in zip(of_device, before, strict=True):
            sizes["cpu"] = size
        parts = ", ".join(f"{name} {took:.2f} s" for name, took in times.items())
        self.report("host alone, one thread", self.num_words, took, extra=parts)
        say(f"    places of the streams that hold a word: {np.mean(filled):.1%}")

    def bilm_alone(self, precision: str, sizes: list[tuple[int, int]]) -> None:
        """The biLM, its vectors left on the device."""
        embedder = self.embedder(precision)
        twin = StreamedBiLM(embedder.bilm)
        for max_words, max_streams in sizes:
            before, streams._MAX_STREAMS = streams._MAX_STREAMS, max_streams
            table = WordTable(twin, embedder._encode_words, self.device)
            tokens = embedder._tokenize(read_lines(self.text))
            words, lengths = next(batches._flat_windows(tokens, max_words))
            rows = table(["<S>", "</S>", *words])
            packed = pack(rows[2:], lengths, bos=int(rows[0]), eos=int(rows[1]))
            streams._MAX_STREAMS = before

            with torch.inference_mode():
                x = table.vectors[torch.as_tensor(packed.words, device=self.device)]
                continues = torch.as_tensor(packed.continues, device=self.device)
                for _ in range(3):  # compile, record, replay
                    twin._run(x, continues)
                took = self.seconds(lambda x=x, c=continues: twin._run(x, c), 5)
                whole = self.seconds(
                    lambda t=table, r=rows, p=packed, n=lengths: batches.by_sentence(
                        twin(t.vectors, r[2:], p).half(), n
                    ),
                    5,
                )
            T, _, B = packed.words.shape
            name = f"biLM alone, {precision}, {B} streams of {T}"
            extra = f"{1e6 * took / T:.0f} us a wave; with look-up and layers {whole * 1e3:.1f} ms"
            self.report(name, sum(lengths), took, extra=extra)
            if (max_words, precision) == (65_536, "bf16"):
                self.device_us = 1e6 * whole / sum(lengths)
        if self.device.type == "cuda":
            self.profile(lambda: twin._run(x, continues), T)
            self.memory()

    def encoder(self) -> None:
        """The character CNN alone, on distinct words."""
        embedder = self.embedder("bf16")
        twin = StreamedBiLM(embedder.bilm)
        vocabulary = list({w: None for line in read_lines(self.text) for w in line.split()})
        some = vocabulary[:32_000]
        for _ in range(2):
            table = WordTable(twin, embedder._encode_words, self.device)
            took = self.seconds(lambda t=table: t(some))
        say(f"{len(some):,} distinct words encoded: {len(some) / took:,.0f} a second, "
            f"{len(vocabulary) / self.num_words:.1%} of the words are distinct")  # fmt: skip

    def to_memory(self, precision: str, max_words: int, **wanted: Any) -> None:
        """From the file to arrays, each dropped when the next comes."""
        embedder = self.embedder(precision)
        for _ in embedder.stream(islice(read_lines(self.text), LINES_WARM), **wanted):
            pass
        embedder._tables.clear()  # all words are new, as for a program that has just begun
        clock = Clock()
        count = 0
        with clock.watching():
            lines = read_lines(self.text)
            for tokens, _ in embedder.stream(lines, **wanted):
                count += len(tokens)
                if count >= max_words:
                    break
        name = " ".join([f"file to arrays, {precision}", *(str(v) for v in wanted.values())])
        self.report(name, count, clock.took, extra=self.device_alone(count))
        clock.say()
        self.memory()

    def device_alone(self, words: int) -> str:
        """Say how long the device takes for so many words in bf16, if that was measured."""
        return f"device alone {self.device_us * words / 1e6:.2f} s" if self.device_us else ""

    def kept_in_memory(self) -> None:
        """`embed`, whose caller keeps all the arrays."""
        embedder = self.embedder("bf16")
        lines = list(islice(read_lines(self.text), 16_000))
        for _ in range(2):
            vectors: list[np.ndarray] = []
            took = self.seconds(lambda v=vectors: v.extend(embedder.embed(lines, dtype="float16")))
        words = sum(v.shape[1] for v in vectors)
        size = sum(v.nbytes for v in vectors) / 1e9
        self.report("embed, bf16 float16, all kept", words, took, extra=f"{size:.1f} GB")

    def to_file(self, suffix: str) -> None:
        """From the file of text to files of vectors, and plain writes of as many bytes."""
        embedder = self.embedder("bf16")
        form = VectorForm(embedder.num_layers, embedder.dim, "float16")
        count = 0

        for _ in embedder.stream(islice(read_lines(self.text), LINES_WARM), dtype="float16"):
            pass

        def rows(start: int) -> Iterator[VectorRow]:
            nonlocal count
            lines = islice(read_lines(self.text), start, LINES_TO_FILE)
            for i, (tokens, vectors) in enumerate(embedder.stream(lines, dtype="float16"), start):
                count += len(tokens)
                yield VectorRow(i, tokens, vectors)

        path = self.folder / f"elmore-benchmark.{suffix}"
        for time_ in ("first", "again"):  # a virtual machine may get its memory only now
            count = 0
            embedder._tables.clear()  # all words are new
            clock = Clock()
            with clock.watching():
                write_vectors(path, rows, form, overwrite=True)
            size = path.stat().st_size
            path.unlink()
            extra = f"{size / 1e9:.1f} GB, {size / clock.took / 1e9:.2f} GB/s, {time_}"
            self.report(f"file to {path}", count, clock.took, extra=extra)
        clock.say()
        plain = self.seconds(lambda: write_plainly(path, size))
        path.unlink()
        say(f"    as many bytes by plain writes: {size / plain / 1e9:.2f} GB/s, "
            f"{count / plain:,.0f} words/s; {self.device_alone(count)}")  # fmt: skip

    def long_sentence(self) -> None:
        """One sentence of 100,000 words."""
        embedder = self.embedder("bf16")
        sentence = [f"word{i % 1000}" for i in range(100_000)]
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        took = self.seconds(lambda: embedder.embed([sentence], dtype="float16"))
        say(f"one sentence of 100,000 words: {took:.1f} s")
        self.memory()

    def same_vectors(self) -> None:
        """The lowest cosine between what the device and the CPU give."""
        sentences = [line.split() for line in islice(read_lines(self.text), 20)]
        expected = Embedder(self.bilm, device="cpu").embed(sentences)
        self.bilm.to(self.device)
        for precision in ("fp32", "bf16"):
            found = self.embedder(precision).embed(sentences)
            pairs = list(zip(found, expected, strict=True))
            error = max(float(np.abs(a - b).max()) for a, b in pairs)
            cosines = [
                (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
                for a, b in pairs
            ]
            lowest = min(float(c.min()) for c in cosines)
            say(f"{precision} against the CPU: lowest cosine {lowest:.6f}, error {error:.1e}")

    def memory(self) -> None:
        """Print the most that the device has held since the last time."""
        if self.device.type == "cuda":
            say(f"    {torch.cuda.max_memory_reserved() / 2**30:.1f} GiB held on the device")
            torch.cuda.reset_peak_memory_stats()

    def profile(self, call: Callable[[], object], waves: int) -> None:
        """Print the kernels that take most of a call."""
        with torch.profiler.profile() as found, torch.inference_mode():
            call()
            self.wait()
        rows = [r for r in found.key_averages() if r.device_type.name == "CUDA"]
        rows.sort(key=lambda row: -row.self_device_time_total)
        total = sum(row.self_device_time_total for row in rows)
        say(f"    {total / waves:.1f} us of kernels a wave")
        for row in rows[:8]:
            each = row.self_device_time_total / waves
            print(f"        {each:7.1f} us a wave  {row.count:6} x  {row.key[:80]}")


class _Nothing(StreamedBiLM):
    """A biLM that encodes in no time."""

    def encode(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(ids), self.config.dim)


class Clock:
    """Where the time goes while vectors are computed, by threads.

    Each part is without the parts inside it. Seconds of the processor are in brackets: what they
    lack, a thread has waited, for the device, the disk or Python's lock.
    """

    PARTS = (
        ("rows of words", WordTable, "__call__"),
        ("new words", WordTable, "_fill"),
        ("streams", batches, "pack"),
        ("biLM, asked for", StreamedBiLM, "forward"),
        ("layers, asked for", batches, "by_sentence"),
        ("wait for vectors", batches, "_finish"),
        ("fetch", Fetcher, "_fetch"),
        ("lend or copy", transfer, "lend"),
        ("rows to Parquet", ParquetWriter, "write"),
        ("rows to HDF5", HDF5Writer, "write"),
        ("write to the file", disk, "write_all"),
        ("write to the file", parquet, "write_all"),
    )

    def __init__(self) -> None:
        self.took = 0.0
        self.times: dict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        self._inside = threading.local()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Measure while the block runs."""
        real = [getattr(owner, attribute) for _, owner, attribute in self.PARTS]
        for (name, owner, attribute), call in zip(self.PARTS, real, strict=True):
            setattr(owner, attribute, self._timed(name, call))
        try:
            with self._part("the rest: lines, tokens, results"):
                yield
        finally:
            for (_, owner, attribute), call in zip(self.PARTS, real, strict=True):
                setattr(owner, attribute, call)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        outer = getattr(self._inside, "now", np.zeros(2))
        inner = self._inside.now = np.zeros(2)  # of the parts inside this one
        began = np.array([time.perf_counter(), time.thread_time()])
        try:
            yield
        finally:
            took = np.array([time.perf_counter(), time.thread_time()]) - began
            self._inside.now = outer
            outer += took
            key = threading.current_thread().name, name
            self.times[key] = tuple(self.times[key] + took - inner)
            if name.startswith("the rest"):
                self.took = took[0]

    def _timed(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*args: object, **kwargs: object) -> object:
            with self._part(name):
                return call(*args, **kwargs)

        return timed

    def say(self) -> None:
        """Print a line for each thread."""
        threads: dict[str, list[str]] = defaultdict(list)
        for (thread, name), (wall, cpu) in self.times.items():
            threads[thread].append(f"{name} {wall:.2f} ({cpu:.2f})")
        for parts in threads.values():
            print("        " + ", ".join(parts))


def write_plainly(path: Path, size: int) -> None:
    """Write so many bytes as fast as one thread can."""
    block = np.ones(2**24, dtype=np.uint8)
    with path.open("wb", buffering=0) as file:
        for start in range(0, size, len(block)):
            file.write(block[: size - start])


def write_by_threads(path: Path, size: int) -> None:
    """Write so many bytes to one file by four threads, each at its own places."""
    block = np.ones(2**24, dtype=np.uint8)
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(4) as threads:
        places = range(0, size, len(block))
        list(threads.map(lambda place: os.pwrite(file.fileno(), block, place), places))


def write_files(path: Path, size: int) -> None:
    """Write so many bytes to four files by four threads."""
    with ThreadPoolExecutor(4) as threads:
        paths = [path.with_name(f"{path.name}{i}") for i in range(4)]
        list(threads.map(write_plainly, paths, [size // 4] * 4))


def write_text(path: Path, num_words: int) -> Path:
    """Write sentences of a made-up language."""
    draw = np.random.default_rng(0)
    vocabulary = 200_000
    share = (np.arange(vocabulary) + 2.7) ** -1.2
    ends = np.cumsum(1 + draw.poisson(0.9 * np.log(np.arange(vocabulary) + 2)))
    letters = draw.integers(ord("a"), ord("z") + 1, ends[-1], dtype=np.uint8).tobytes().decode()
    words = np.array([letters[a:b] for a, b in zip([0, *ends], ends, strict=False)])
    lengths = np.maximum(1, draw.gamma(3.5, 7, num_words // 24)).astype(int)
    ranks = np.searchsorted(np.cumsum(share / share.sum()), draw.random(lengths.sum()))
    text = iter(words[np.minimum(ranks, vocabulary - 1)].tolist())
    with path.open("w", encoding="utf-8") as file:
        for length in lengths.tolist():
            file.write(" ".join(islice(text, length)) + "\n")
    return path


def main() -> None:
    """Run some sections."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="original")
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--folder", type=Path, help="where files are written, on the disk to test")
    parser.add_argument("--only", nargs="+", default=SHORT, help="names of sections, or all")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    sizes = [(16_384, 128), (32_768, 256), (65_536, 256), (65_536, 512), (131_072, 512)]
    sizes += [(131_072, 1024), (262_144, 1024)]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bench = Bench(args, Path(folder))
        sections: dict[str, Callable[[], None]] = {
            "same": bench.same_vectors,
            "machine": bench.machine,
            "host": bench.host,
            "encoder": bench.encoder,
            "bf16": lambda: bench.bilm_alone("bf16", [(65_536, 512), (131_072, 1024)]),
            "sizes": lambda: bench.bilm_alone("bf16", sizes),
            "arrays": lambda: bench.to_memory("bf16", 10**9, dtype="float16"),
            "large": lambda: bench.to_memory("bf16", 10**9, dtype="float16", batch_words=131_072),
            "float32": lambda: bench.to_memory("bf16", 10**9),
            "top": lambda: bench.to_memory("bf16", 10**9, layers="top", dtype="float16"),
            "kept": bench.kept_in_memory,
            "parquet": lambda: bench.to_file("parquet"),
            "hdf5": lambda: bench.to_file("h5"),
            "long": bench.long_sentence,
            "fp32": lambda: bench.bilm_alone("fp32", [(65_536, 512)]),
            "exact": lambda: bench.to_memory("fp32", 300_000, dtype="float16"),
        }
        for name in sections if args.only == ["all"] else args.only:
            sections[name]()


if __name__ == "__main__":
    main()
