"""Words a second on this computer, beside the plain way to write the same model in PyTorch.

Run as: python benchmarks/embed.py [tiny|small|medium|original]
"""

import random
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import elmore
from elmore.embedder import Embedder

NUM_SENTENCES = 32


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


def words_per_second(run: Callable[[], object], words: int) -> float:
    """Return the best of three runs after one that does not count."""

    def once() -> float:
        began = time.perf_counter()
        run()
        return words / (time.perf_counter() - began)

    once()
    return max(once() for _ in range(3))


def main() -> None:
    """Print one line a program."""
    size = sys.argv[1] if len(sys.argv) > 1 else "original"
    torch.manual_seed(0)
    bilm = elmore.BiLM(getattr(elmore.BiLMConfig, size)())
    batch = sentences()
    words = sum(map(len, batch))
    print(f"{size}, {words} words in {len(batch)} sentences, {torch.get_num_threads()} threads")
    plain = Plain(bilm)
    reference = words_per_second(lambda: plain(batch), words)
    print(f"nn.LSTM(proj_size), every token encoded  {reference:8,.0f} words/s")
    exact = Embedder(bilm, device="cpu").embed(batch)
    for precision in ("fp32", "bf16", "int8"):
        embedder = Embedder(bilm, device="cpu", precision=precision)
        ours = words_per_second(lambda e=embedder: e.embed(batch), words)
        cosine = lowest_cosine(embedder.embed(batch), exact)
        print(
            f"elmore, {precision:4} {'':27} {ours:8,.0f} words/s  x{ours / reference:.1f}  "
            f"lowest cosine to fp32 {cosine:.5f}"
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
