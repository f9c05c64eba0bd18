"""Speed of one whole training step of a biLM on one CUDA device.

From encoded words on the host to updated weights: transfer, character CNN, both directions,
sampled softmax, backward, clipping, optimiser. A token is a position of the text; both directions
read it. Words are synthetic, with the frequencies and lengths of English.

Run as: python benchmarks/train_step.py [--sizes original medium] [--streams 256 1024]
            [--eager] [--profile]
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.softmax import Softmax
from elmore.text.characters import encode_words
from elmore.text.windows import LMBatch
from elmore.training.graph import GraphedStep
from elmore.training.optim import clip_gradients, make_optimizer

TOKENS, VOCABULARY, SAMPLES = 20, 180_000, 8192


class Text:
    """Windows of a made-up language: Zipf's law, longer words rarer, 5 letters on average."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(0)
        rank = np.arange(VOCABULARY)
        share = (rank + 2.7) ** -1.25
        self.cumulated = np.cumsum(share / share.sum())
        lengths = 1 + self.draw.poisson(0.9 * np.log(rank + 2))
        letters = self.draw.integers(ord("a"), ord("z") + 1, lengths.sum(), dtype=np.uint8)
        ends = np.cumsum(lengths)
        words = [
            letters[end - length : end].tobytes().decode()
            for end, length in zip(ends, lengths, strict=True)
        ]
        self.spellings = encode_words(words)

    def window(self, streams: int) -> LMBatch:
        """Return one batch in pinned memory, as a data loader would."""
        tokens = np.searchsorted(self.cumulated, self.draw.random((2, streams, TOKENS + 1)))
        distinct, words = np.unique(tokens[..., :-1], return_inverse=True)
        batch = LMBatch(
            distinct=self.spellings[distinct].short(),
            words=torch.from_numpy(words.reshape(2, streams, TOKENS)).int(),
            targets=torch.from_numpy(np.ascontiguousarray(tokens[..., 1:])).int(),
            continues=torch.from_numpy(self.draw.random((2, streams, TOKENS)) < 0.96),
        )
        return LMBatch(*(x.pin_memory() for x in batch))


class Trainer:
    """A model, its optimiser and its state; `step` is what is measured."""

    def __init__(self, config: BiLMConfig, streams: int, graphed: bool) -> None:
        torch.manual_seed(0)
        softmax = Softmax(dim=config.dim, vocab_size=VOCABULARY)
        self.model = LanguageModel(BiLM(config), softmax).cuda()
        self.optimizer = make_optimizer(self.model, lr=1e-3)
        self.generator = torch.Generator("cuda").manual_seed(0)
        self.state = [
            LSTMState(
                *(torch.zeros(streams, n, device="cuda") for n in (config.dim, config.cell_dim))
            )
            for _ in range(2 * config.num_layers)
        ]
        self.fit = GraphedStep(self.fit_eagerly, [self.generator]) if graphed else self.fit_eagerly

    def fit_eagerly(
        self, batch: LMBatch, state: BiLMState
    ) -> tuple[tuple[torch.Tensor, ...], BiLMState]:
        """Fit one window."""
        batch = LMBatch(*(x.cuda(non_blocking=True) for x in batch))
        negatives = self.model.softmax.draw(SAMPLES, self.generator)
        with torch.autocast("cuda", torch.bfloat16):
            output = self.model(batch, state, negatives)
        self.optimizer.zero_grad(set_to_none=True)
        output.loss.backward()
        norm = clip_gradients(self.model.parameters(), 10.0)
        self.optimizer.step()
        return (output.loss.detach(), norm), output.state

    def step(self, batch: LMBatch) -> torch.Tensor:
        """Fit one window and remember where it ended."""
        (loss, _), self.state = self.fit(batch, self.state)
        return loss


def operations_per_token(config: BiLMConfig, distinct_per_token: float) -> float:
    """Return the multiplications and additions of all matrix products that a step cannot avoid."""
    D, H, F = config.dim, config.cell_dim, config.num_filters
    lstm = 2 * config.num_layers * (2 * D * 4 * H + H * D)
    encoder = distinct_per_token * (config.num_highways * 2 * F * F + F * D)
    return 2 * 3 * (lstm + encoder + 2 * D * SAMPLES)


def matmul_peak() -> float:
    """Return the measured speed of a large bfloat16 product, in operations a second."""
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / seconds(lambda: a @ b, 30)


def seconds(call: Callable[[], object], times: int) -> float:
    """Return the mean time of a call, after some that warm up."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def measure(
    name: str, streams: int, text: Text, *, peak: float, eager: bool, profile: bool
) -> None:
    """Print one line, and where the time goes if asked."""
    config = getattr(BiLMConfig, name)()
    trainer = Trainer(config, streams, graphed=not eager)
    windows = [text.window(streams) for _ in range(16)]
    losses, turn = [], iter(range(10**9))

    def step() -> None:
        losses.append(trainer.step(windows[next(turn) % len(windows)]))

    torch.cuda.reset_peak_memory_stats()
    for _ in windows:  # every shape once: kernels are compiled, graphs recorded
        step()
    took = seconds(step, 30)
    tokens = streams * TOKENS
    distinct = np.mean([len(window.distinct) for window in windows])
    share = operations_per_token(config, distinct / tokens) * tokens / took / peak
    print(
        f"{name:>8} {streams:>5} x {TOKENS}  {distinct:6.0f} distinct  {1e3 * took:7.2f} ms  "
        f"{tokens / took:>9,.0f} tokens/s  {share:4.0%} of the matrix peak  "
        f"{torch.cuda.max_memory_allocated() / 2**30:5.1f} GiB  "
        f"loss {losses[0].item():.2f} -> {losses[-1].item():.2f}",
        flush=True,
    )
    if profile:
        print_profile(step)


def print_profile(step: Callable[[], None], steps: int = 5) -> None:
    """Print the kernels that take most of a step."""
    with torch.profiler.profile() as found:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    kernels = [
        row for row in found.key_averages() if row.device_type.name == "CUDA" and "#" not in row.key
    ]
    kernels.sort(key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in kernels)
    print(f"    {total / steps / 1e3:.2f} ms of kernels a step")
    for row in kernels[:40]:
        each = row.self_device_time_total / steps / 1e3
        print(f"    {each:8.3f} ms  {row.count / steps:5.0f} x  {row.key[:90]}")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["original", "medium"])
    parser.add_argument("--streams", nargs="+", type=int, default=[128, 256, 512, 1024])
    parser.add_argument("--eager", action="store_true", help="do not replay a CUDA graph")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    peak = matmul_peak()
    print(f"{torch.cuda.get_device_name()}: bf16 matrix product {peak / 1e12:.0f} TFLOP/s")
    text = Text()
    for name in args.sizes:
        for streams in args.streams:
            measure(name, streams, text, peak=peak, eager=args.eager, profile=args.profile)


if __name__ == "__main__":
    main()
