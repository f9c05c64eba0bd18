"""Words per second on a CPU, by batch size, sentence length and number of threads.

Run as: python benchmarks/cost.py [MODEL] [-o cost.png]
"""

import argparse
import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import elmore

PRECISIONS = ("fp32", "bf16", "int8")
WORDS = 2000  # embedded per measurement
TYPICAL_LENGTH = 25

Curve = dict[str, list[tuple[int, float]]]
"""For each precision, pairs of the setting's value and the speed in words per second."""


def sample_sentences(words: int, length: int) -> list[list[str]]:
    """Return random sentences of equal length, with word frequencies by Zipf's law."""
    rng = random.Random(0)
    vocabulary = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(vocabulary))]
    return [rng.choices(vocabulary, weights, k=length) for _ in range(max(1, words // length))]


def measure_speed(embedder: elmore.Embedder, sentences: list[list[str]], batch_size: int) -> float:
    """Return words per second, the best of three runs."""
    batches = [sentences[i : i + batch_size] for i in range(0, len(sentences), batch_size)]

    def once() -> float:
        start = time.perf_counter()
        for batch in batches:
            embedder.embed(batch)
        return sum(map(len, sentences)) / (time.perf_counter() - start)

    return max(once() for _ in range(3))


def measure(
    name: str,
    embedders: dict[str, elmore.Embedder],
    settings: Iterable[int],
    run: Callable[[elmore.Embedder, int], float],
) -> Curve:
    """Measure each precision at each value of a setting, and print the speeds."""
    curves: Curve = {precision: [] for precision in embedders}
    print(f"\n{name:20}" + "".join(f"{precision:>10}" for precision in embedders))
    for setting in settings:
        for precision, embedder in embedders.items():
            curves[precision].append((setting, run(embedder, setting)))
        row = "".join(f"{points[-1][1]:10,.0f}" for points in curves.values())
        print(f"{setting:20,}{row}", flush=True)
    return curves


def plot(panels: dict[str, Curve], path: Path) -> None:
    """Plot one panel per setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for axes, (name, curves) in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        for precision, points in curves.items():
            axes.plot(*zip(*points, strict=True), "o-", label=precision)
        axes.set_xlabel(name)
        axes.set_xscale("log", base=2)
        ticks = [setting for setting, _ in next(iter(curves.values()))]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("words per second")
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="en")
    parser.add_argument("-o", "--output", type=Path, default=Path("cost.png"))
    args = parser.parse_args()
    embedders = {p: elmore.load(args.model, device="cpu", precision=p) for p in PRECISIONS}
    typical = sample_sentences(WORDS, TYPICAL_LENGTH)
    threads = os.cpu_count() or 1

    def speed_by_threads(embedder: elmore.Embedder, count: int) -> float:
        torch.set_num_threads(count)
        return measure_speed(embedder, typical, len(typical))

    def speed_by_length(embedder: elmore.Embedder, length: int) -> float:
        sentences = sample_sentences(WORDS, length)
        return measure_speed(embedder, sentences, len(sentences))

    panels = {
        "sentences per batch": measure(
            "sentences per batch",
            embedders,
            (1, 4, 16, 64),
            lambda embedder, count: measure_speed(embedder, typical[: max(count, 8)], count),
        ),
        "words per sentence": measure(
            "words per sentence", embedders, (5, 20, 80, 320), speed_by_length
        ),
        "threads": measure(
            "threads", embedders, [2**k for k in range(threads.bit_length())], speed_by_threads
        ),
    }
    plot(panels, args.output)


if __name__ == "__main__":
    main()
