"""Words a second on this computer, beside AllenNLP if it is there and a plain PyTorch model.

Run as: python benchmarks/embed.py [tiny|small|medium|original]

For AllenNLP, see benchmarks/allennlp_bilm.py. All programs have the same weights and sentences.
elmore remembers token vectors, so it is measured twice: with words that it has had before, which
is nearly all of a text, and with words that are all new.
"""

import argparse
import random
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from allennlp_bilm import find_allennlp
from torch import Tensor, nn
from tqdm import trange

import elmore
from elmore.embedder import Embedder

NUM_SENTENCES = 32
ROUNDS = 3  # programs take turns, and the fastest call counts: machines have bad moments
SECONDS = 1  # of a turn


def sentences() -> list[list[str]]:
    """Return sentences of the lengths that news has, in words that come again as in news."""
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lengths = [max(4, round(draw.gauss(26, 10))) for _ in range(NUM_SENTENCES)]
    return [draw.choices(words, weights, k=length) for length in lengths]


class Plain(nn.Module):
    """The token layer for every token, then nn.LSTM with a projection. It knows no clipping."""

    def __init__(self, bilm: elmore.BiLM) -> None:
        super().__init__()
        config = bilm.config
        self.encode = bilm.encode
        self.lstms = nn.ModuleList(
            nn.LSTM(config.dim, config.cell_dim, config.num_layers, proj_size=config.dim)
            for _ in range(2)
        )

    @torch.inference_mode()
    def forward(self, batch: list[list[str]]) -> list[Tensor]:
        """Return the top layer of both directions, padding and all."""
        x = self.encode(elmore.encode_sentences(batch).ids).transpose(0, 1)
        return [
            lstm(direction)[0] for lstm, direction in zip(self.lstms, (x, x.flip(0)), strict=True)
        ]


class Program:
    """A program, and the seconds that its calls have taken, by what was asked of it."""

    def __init__(self, name: str, run: Callable[[list[list[str]]], Any]) -> None:
        self.name, self.run = name, run
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def measure(
        self, what: str, batch: list[list[str]], before: Callable[[], object] = int
    ) -> None:
        """Call it for a while, and once at least; the first call does not count."""
        self.run(batch)
        end = time.perf_counter() + SECONDS
        while True:
            before()
            began = time.perf_counter()
            self.run(batch)
            now = time.perf_counter()
            self.seconds[what].append(now - began)
            if now > end:
                return

    def best(self, what: str) -> float:
        """Return the seconds of its fastest call."""
        return min(self.seconds[what] or self.seconds["known"])  # most have nothing to forget


def programs(bilm: elmore.BiLM) -> Iterator[Program]:
    """Yield programs, the one to compare with first."""
    if allennlp := find_allennlp(bilm):
        yield Program("AllenNLP", allennlp)
    yield Program("nn.LSTM(proj_size)", Plain(bilm))
    with tempfile.TemporaryDirectory() as folder:
        Embedder(bilm, device="cpu").save(folder, overwrite=True)
        for precision in ("fp32", "bf16", "int8"):
            embedder = elmore.load(folder, device="cpu", precision=precision)
            yield Program(f"elmore, {precision}", embedder.embed)


def main() -> None:
    """Print one line a program."""
    warnings.filterwarnings("ignore", ".*projections", UserWarning)  # no oneDNN for nn.LSTM
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = ["tiny", "small", "medium", "original"]
    parser.add_argument("size", nargs="?", default="original", choices=sizes)
    size = parser.parse_args().size
    torch.manual_seed(0)
    bilm = elmore.BiLM(getattr(elmore.BiLMConfig, size)())
    batch = sentences()
    words = sum(map(len, batch))
    alone = [[word for sentence in batch for word in sentence][:50]]
    exact = Embedder(bilm, device="cpu").embed(batch)
    print(f"{size}, {words} words in {len(batch)} sentences, {torch.get_num_threads()} threads\n")
    all_programs = list(programs(bilm))
    for _ in trange(ROUNDS, desc="rounds", leave=False):
        for program in all_programs:
            program.measure("known", batch)
            program.measure("alone", alone)
            if isinstance(embedder := getattr(program.run, "__self__", None), Embedder):
                program.measure("new", batch, before=lambda e=embedder: e._tables.clear())
    first = all_programs[0]
    print(
        f"{'':20}{'words/s':>16}{'all words new':>16}{'50 words alone':>19}{'cosine to fp32':>17}"
    )
    for program in all_programs:
        known, new, quick = (program.best(what) for what in ("known", "new", "alone"))
        line = f"{program.name:20}{words / known:9,.0f} x{first.best('known') / known:5.1f}"
        line += f"{words / new:9,.0f} x{first.best('new') / new:5.1f}"
        line += f"{1000 * quick:9,.0f} ms x{first.best('alone') / quick:5.1f}"
        if program.name.startswith("elmore"):
            line += f"{lowest_cosine(program.run(batch), exact):17.5f}"
        print(line)


def lowest_cosine(found: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """Return the cosine of the word and layer that differ most."""
    lowest = 1.0
    for a, b in zip(found, exact, strict=True):
        lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        lowest = min(lowest, float(((a * b).sum(-1) / lengths).min()))
    return lowest


if __name__ == "__main__":
    main()
