"""Words a second on this computer, beside the plain way to write the same model in PyTorch.

Run as: python benchmarks/embed.py [tiny|small|medium|original]
"""

import random
import sys
import time
from collections.abc import Callable

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
    plain, embedder = Plain(bilm), Embedder(bilm, device="cpu")
    reference = words_per_second(lambda: plain(batch), words)
    print(f"nn.LSTM(proj_size), every token encoded  {reference:8,.0f} words/s")
    ours = words_per_second(lambda: embedder.embed(batch), words)
    print(f"elmore, fp32                             {ours:8,.0f} words/s  x{ours / reference:.1f}")


if __name__ == "__main__":
    main()
