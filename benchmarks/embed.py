"""Words a second on this computer, beside AllenNLP if it is there and a plain PyTorch model.

Run as: python benchmarks/embed.py [tiny|small|medium|original]

For AllenNLP, see benchmarks/allennlp_bilm.py. All programs have the same weights and sentences.
elmore remembers token vectors, so it is measured twice: with words that it has had before, which
is nearly all of a text, and with words that are all new.
"""

import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from allennlp_bilm import find_allennlp
from torch import Tensor, nn

import elmore
from elmore.embedder import Embedder

NUM_SENTENCES = 32
SECONDS = 4  # for each program and measurement: a machine has slow moments
Embed = Callable[[list[list[str]]], object]


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


def best_seconds(run: Callable[[], object], before: Callable[[], object] = int) -> float:
    """Return the fastest of the runs that fit into some seconds, and of three at least."""
    run()
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        before()
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def programs(bilm: elmore.BiLM) -> Iterator[tuple[str, Embed, Callable[[], object]]]:
    """Yield programs, the one to compare with first, and what makes each forget its words."""
    if allennlp := find_allennlp(bilm):
        yield "AllenNLP", allennlp, int
    yield "nn.LSTM(proj_size)", Plain(bilm), int
    for precision in ("fp32", "bf16", "int8"):
        embedder = Embedder(bilm, device="cpu", precision=precision)
        yield f"elmore, {precision}", embedder.embed, embedder._tables.clear


def main() -> None:
    """Print one line a program."""
    warnings.filterwarnings("ignore", ".*projections", UserWarning)  # no oneDNN for nn.LSTM
    size = sys.argv[1] if len(sys.argv) > 1 else "original"
    torch.manual_seed(0)
    bilm = elmore.BiLM(getattr(elmore.BiLMConfig, size)())
    batch = sentences()
    words = sum(map(len, batch))
    alone = [[word for sentence in batch for word in sentence][:50]]
    exact = Embedder(bilm, device="cpu").embed(batch)
    print(f"{size}, {words} words in {len(batch)} sentences, {torch.get_num_threads()} threads\n")
    print(
        f"{'':20}{'words/s':>16}{'all words new':>16}{'50 words alone':>19}{'cosine to fp32':>17}"
    )
    first: tuple[float, ...] = ()
    for name, run, forget in programs(bilm):
        seconds = (
            best_seconds(partial(run, batch)),
            best_seconds(partial(run, batch), forget),
            best_seconds(partial(run, alone)),
        )
        first = first or seconds
        known, new, quick = (a / b for a, b in zip(first, seconds, strict=True))
        cosine = f"{lowest_cosine(run(batch), exact):17.5f}" if name.startswith("elmore") else ""
        print(
            f"{name:20}{words / seconds[0]:9,.0f} x{known:5.1f}"
            f"{words / seconds[1]:9,.0f} x{new:5.1f}"
            f"{1000 * seconds[2]:9,.0f} ms x{quick:5.1f}{cosine}",
            flush=True,
        )


def lowest_cosine(found: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """Return the cosine of the word and layer that differ most."""
    lowest = 1.0
    for a, b in zip(found, exact, strict=True):
        lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        lowest = min(lowest, float(((a * b).sum(-1) / lengths).min()))
    return lowest


if __name__ == "__main__":
    main()
