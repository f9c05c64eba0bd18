"""Words per second on a CPU: elmore, AllenNLP and a plain PyTorch model.

Run as: python benchmarks/embed.py [tiny|small|medium|original]

AllenNLP is included if it is installed, see benchmarks/allennlp_bilm.py. All programs have the same
sentences and, except for nn.LSTM, the same weights. elmore caches the vectors of words, so it is
measured twice: with all words cached, like most words of a long text, and with an empty cache.
"""

import argparse
import random
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from allennlp_bilm import find_allennlp
from torch import Tensor, nn
from tqdm import trange

import elmore
from elmore.checkpoint.hdf5 import write_hdf5
from elmore.compat import allennlp as compat
from elmore.embedder import Embedder

NUM_SENTENCES = 32
ROUNDS = 3  # over all programs, because the speed of a shared machine varies
SECONDS = 1  # per program, scenario and round
FP32 = "elmore, fp32"

Sentences = list[list[str]]


def sample_sentences() -> Sentences:
    """Return random sentences of about 26 words, with word frequencies by Zipf's law."""
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lengths = [max(4, round(rng.gauss(26, 10))) for _ in range(NUM_SENTENCES)]
    return [rng.choices(words, weights, k=length) for length in lengths]


class PlainModel(nn.Module):
    """A token encoder without a cache, and nn.LSTM(proj_size), which does not clip."""

    def __init__(self, bilm: elmore.BiLM) -> None:
        super().__init__()
        config = bilm.config
        self.encode = bilm.encode
        self.lstms = nn.ModuleList(
            nn.LSTM(config.dim, config.cell_dim, config.num_layers, proj_size=config.dim)
            for _ in range(2)
        )

    @torch.inference_mode()
    def forward(self, batch: Sentences) -> list[Tensor]:
        """Return the top layer of both directions, padding included."""
        x = self.encode(elmore.encode_sentences(batch).ids).transpose(0, 1)
        return [
            lstm(direction)[0] for lstm, direction in zip(self.lstms, (x, x.flip(0)), strict=True)
        ]


class Program:
    """A function that embeds sentences, and the durations of its calls by scenario."""

    def __init__(
        self,
        name: str,
        run: Callable[[Sentences], Any],
        clear_cache: Callable[[], object] | None = None,
    ) -> None:
        self.name, self.run, self.clear_cache = name, run, clear_cache
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def measure(
        self, scenario: str, batch: Sentences, before: Callable[[], object] | None = None
    ) -> None:
        """Time calls for about SECONDS seconds, after one warm-up call."""
        self.run(batch)
        end = time.perf_counter() + SECONDS
        while True:
            if before:
                before()
            start = time.perf_counter()
            self.run(batch)
            now = time.perf_counter()
            self.seconds[scenario].append(now - start)
            if now > end:
                return

    def fastest(self, scenario: str) -> float:
        """Return the duration of the fastest call. Without a cache, there is no scenario `new`."""
        return min(self.seconds[scenario] or self.seconds["cached"])


def make_programs(bilm: elmore.BiLM) -> Iterator[Program]:
    """Yield the programs. Speeds are relative to the first one."""
    if allennlp := find_allennlp(bilm):
        yield Program("AllenNLP", allennlp)
    yield Program("nn.LSTM(proj_size)", PlainModel(bilm))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Embedder(bilm, device="cpu").save(folder / "model")
        embedders = {
            precision: elmore.load(folder / "model", device="cpu", precision=precision)
            for precision in ("fp32", "bf16", "int8")
        }
        write_hdf5(bilm, folder / "weights.hdf5", folder / "options.json")
        elmo = elmore.Elmo(bilm, dropout=0).eval()
        compat_elmo = compat.Elmo(folder / "options.json", folder / "weights.hdf5", 1, dropout=0)
        compat_elmo.eval()
    for precision, embedder in embedders.items():
        yield Program(f"elmore, {precision}", embedder.embed, embedder._runner.words.clear)
    encode = embedders["fp32"].encode
    yield Program(
        "elmore.Elmo",
        torch.no_grad()(lambda batch: elmo(encode(batch))),
        lambda: elmo._runner._words.clear(),
    )
    yield Program(
        "elmore.compat.allennlp.Elmo",
        torch.no_grad()(lambda batch: compat_elmo(compat.batch_to_ids(batch))),
        lambda: compat_elmo._runner._words.clear(),
    )


def main() -> None:
    """Print one line per program."""
    # nn.LSTM(proj_size) warns that it does not use oneDNN.
    warnings.filterwarnings("ignore", ".*projections", UserWarning)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = ["tiny", "small", "medium", "original"]
    parser.add_argument("size", nargs="?", default="original", choices=sizes)
    size = parser.parse_args().size
    torch.manual_seed(0)
    bilm = elmore.BiLM(getattr(elmore.BiLMConfig, size)())
    batch = sample_sentences()
    num_words = sum(map(len, batch))
    single = [[word for sentence in batch for word in sentence][:50]]
    exact = Embedder(bilm, device="cpu").embed(batch)
    threads = torch.get_num_threads()
    print(f"{size}, {num_words} words in {len(batch)} sentences, {threads} threads\n")
    programs = list(make_programs(bilm))
    for _ in trange(ROUNDS, desc="rounds", leave=False):
        for program in programs:
            program.measure("cached", batch)
            program.measure("single", single)
            if program.clear_cache:
                program.measure("new", batch, before=program.clear_cache)
    baseline = programs[0]
    [fp32] = [program for program in programs if program.name == FP32]
    print(f"x: speed relative to {baseline.name}; in parentheses, relative to {FP32}\n")
    print(
        f"{'':28}{'words cached, words/s':>26}{'no word cached':>17}{'sentence of 50 words':>22}"
        f"{'cosine to fp32':>17}"
    )
    for program in programs:
        cached, new, latency = (program.fastest(s) for s in ("cached", "new", "single"))
        line = f"{program.name:28}{num_words / cached:10,.0f}"
        line += f" x{baseline.fastest('cached') / cached:5.1f}"
        line += f" (x{fp32.fastest('cached') / cached:5.2f})"
        line += f"{num_words / new:10,.0f} x{baseline.fastest('new') / new:5.1f}"
        line += f"{1000 * latency:12,.0f} ms x{baseline.fastest('single') / latency:5.1f}"
        if program.name.startswith("elmore, "):
            line += f"{lowest_cosine(program.run(batch), exact):17.5f}"
        print(line)


def lowest_cosine(vectors: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """Return the lowest cosine over all words and layers."""
    lowest = 1.0
    for a, b in zip(vectors, exact, strict=True):
        norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        lowest = min(lowest, float(((a * b).sum(-1) / norms).min()))
    return lowest


if __name__ == "__main__":
    main()
