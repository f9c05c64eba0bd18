"""Speed of a complete training step of a biLM on one GPU.

A step includes the copy of the batch to the GPU, the character CNN, the LSTMs of both directions,
sampled softmax, the backward pass, gradient clipping and the optimizer. Each position of the text
counts as one token, although it is an input of both directions. Words are random, with the
frequencies and lengths of English words.

Run as: python benchmarks/train_step.py [--sizes original medium] [--rows 256 1024]
            [--optimizer muon] [--eager] [--profile]
"""

import argparse
import time
from collections.abc import Callable
from itertools import cycle

import numpy as np
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.softmax import Softmax
from elmore.pretrain.graph import GraphedStep
from elmore.pretrain.step import StepResult, train_step
from elmore.text.characters import encode_words
from elmore.text.windows import LMBatch
from elmore.training.optim import OptimizerName, make_optimizer

TOKENS, VOCABULARY, SAMPLES = 20, 180_000, 8192


class RandomText:
    """Batches of random words with frequencies by Zipf's law. Rare words are longer."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        rank = np.arange(VOCABULARY)
        frequency = (rank + 2.7) ** -1.25
        self.cumulative = np.cumsum(frequency / frequency.sum())
        lengths = 1 + self.rng.poisson(0.9 * np.log(rank + 2))
        letters = self.rng.integers(ord("a"), ord("z") + 1, lengths.sum(), dtype=np.uint8)
        ends = np.cumsum(lengths)
        words = [
            letters[end - length : end].tobytes().decode()
            for end, length in zip(ends, lengths, strict=True)
        ]
        self.ids = encode_words(words)

    def batch(self, rows: int) -> LMBatch:
        """Return a batch in pinned memory."""
        tokens = np.searchsorted(self.cumulative, self.rng.random((2, rows, TOKENS + 1)))
        distinct, words = np.unique(tokens[..., :-1], return_inverse=True)
        batch = LMBatch(
            distinct=self.ids[distinct].short(),
            words=torch.from_numpy(words.reshape(2, rows, TOKENS)).int(),
            targets=torch.from_numpy(np.ascontiguousarray(tokens[..., 1:])).int(),
            keep_state=torch.from_numpy(self.rng.random((2, rows, TOKENS)) < 0.96),
        )
        return LMBatch(*(x.pin_memory() for x in batch))


class Trainer:
    """A model, its optimizer and its LSTM states. The benchmark measures `step`."""

    def __init__(
        self, config: BiLMConfig, rows: int, optimizer: OptimizerName, graphed: bool
    ) -> None:
        torch.manual_seed(0)
        softmax = Softmax(dim=config.dim, vocab_size=VOCABULARY)
        self.model = LanguageModel(BiLM(config), softmax).cuda()
        self.optimizer = make_optimizer(self.model, optimizer, lr=1e-3)
        self.generator = torch.Generator("cuda").manual_seed(0)
        self.state = [
            LSTMState(*(torch.zeros(rows, n, device="cuda") for n in (config.dim, config.cell_dim)))
            for _ in range(2 * config.num_layers)
        ]
        self.run = GraphedStep(self.run_eagerly, [self.generator]) if graphed else self.run_eagerly

    def run_eagerly(self, batch: LMBatch, state: BiLMState) -> StepResult:
        """Train on one batch."""
        batch = LMBatch(*(x.cuda(non_blocking=True) for x in batch))
        negatives = self.model.softmax.draw(SAMPLES, self.generator)
        return train_step(self.model, self.optimizer, batch, state, negatives, clip_norm=10.0)

    def step(self, batch: LMBatch) -> torch.Tensor:
        """Train on one batch, carry the states over to the next step, and return the loss."""
        result = self.run(batch, self.state)
        self.state = result.state
        return result.losses.mean()


def flops_per_token(config: BiLMConfig, distinct_per_token: float) -> float:
    """Return the floating-point operations per token of all matrix products of a step."""
    D, H, F = config.dim, config.cell_dim, config.num_filters
    lstm = 2 * config.num_layers * (2 * D * 4 * H + H * D)
    encoder = distinct_per_token * (config.num_highways * 2 * F * F + F * D)
    return 2 * 3 * (lstm + encoder + 2 * D * SAMPLES)


def measure_matmul() -> float:
    """Return the measured speed of a large bfloat16 matrix product, in FLOP/s."""
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / mean_seconds(lambda: a @ b, 30)


def mean_seconds(call: Callable[[], object], calls: int) -> float:
    """Return the mean duration of a call, after five warm-up calls."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def measure(
    name: str,
    rows: int,
    optimizer: OptimizerName,
    text: RandomText,
    *,
    peak: float,
    eager: bool,
    profile: bool,
) -> None:
    """Print the speed for a size and a number of rows and, if requested, a profile."""
    config = getattr(BiLMConfig, name)()
    trainer = Trainer(config, rows, optimizer, graphed=not eager)
    batches = [text.batch(rows) for _ in range(16)]
    losses = []
    next_batch = cycle(batches)

    def step() -> None:
        losses.append(trainer.step(next(next_batch)))

    torch.cuda.reset_peak_memory_stats()
    for _ in batches:  # warm-up: compile kernels, capture a CUDA graph for each shape
        step()
    seconds = mean_seconds(step, 30)
    tokens = rows * TOKENS
    distinct = np.mean([len(batch.distinct) for batch in batches])
    utilization = flops_per_token(config, distinct / tokens) * tokens / seconds / peak
    print(
        f"{name:>8} {rows:>5} x {TOKENS}  {distinct:6.0f} distinct  {1e3 * seconds:7.2f} ms  "
        f"{tokens / seconds:>9,.0f} tokens/s  {utilization:4.0%} of the matmul speed  "
        f"{torch.cuda.max_memory_allocated() / 2**30:5.1f} GiB  "
        f"loss {losses[0].item():.2f} -> {losses[-1].item():.2f}",
        flush=True,
    )
    if profile:
        print_profile(step)


def print_profile(step: Callable[[], None], steps: int = 5) -> None:
    """Print the kernels that take the most time."""
    with torch.profiler.profile() as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    kernels = [
        row
        for row in profiler.key_averages()
        if row.device_type.name == "CUDA" and "#" not in row.key
    ]
    kernels.sort(key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in kernels)
    print(f"    {total / steps / 1e3:.2f} ms of kernels per step")
    for row in kernels[:40]:
        milliseconds = row.self_device_time_total / steps / 1e3
        print(f"    {milliseconds:8.3f} ms  {row.count / steps:5.0f} x  {row.key[:90]}")


def main() -> None:
    """Print one line per size and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["original", "medium"])
    parser.add_argument("--rows", nargs="+", type=int, default=[128, 256, 512, 1024])
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    parser.add_argument("--eager", action="store_true", help="do not use CUDA graphs")
    parser.add_argument("--profile", action="store_true", help="also print the slowest kernels")
    args = parser.parse_args()
    peak = measure_matmul()
    print(f"{torch.cuda.get_device_name()}: bf16 matmul {peak / 1e12:.0f} TFLOP/s")
    text = RandomText()
    for name in args.sizes:
        for rows in args.rows:
            measure(
                name,
                rows,
                args.optimizer,
                text,
                peak=peak,
                eager=args.eager,
                profile=args.profile,
            )


if __name__ == "__main__":
    main()
