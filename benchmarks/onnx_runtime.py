"""Words per second in ONNX Runtime, relative to `Embedder.embed`, in one run on a CPU.

Run as: python benchmarks/onnx_runtime.py [MODEL] [--threads N] [--sentences N]

MODEL is a directory or the name of an installed model; by default the English one. Both embed the
same tokenized sentences, one at a time and all at once. ONNX Runtime gets them sorted by length, in
batches of 32. `embed` forms its own batches and has all words in its cache; ONNX Runtime has none.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import torch

import elmore
from elmore.integrations.onnx import export

ROUNDS = 3  # over both, because the speed of a shared machine varies
BATCH_SIZE = 32


def sample_sentences(number: int) -> list[list[str]]:
    """Return random sentences of about 26 words, with word frequencies by Zipf's law."""
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lengths = [max(4, round(rng.gauss(26, 10))) for _ in range(number)]
    return [rng.choices(words, weights, k=length) for length in lengths]


def main() -> None:
    """Print the speed of both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="en")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sentences", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    elmo = elmore.load(args.model, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        file = export(Path(folder) / "elmo.onnx", elmo).file
        session = onnxruntime.InferenceSession(file, options)

    def run_onnx(sentences: list[list[str]]) -> None:
        ordered = sorted(sentences, key=len)
        for i in range(0, len(ordered), BATCH_SIZE):
            session.run(None, {"ids": elmo.encode(ordered[i : i + BATCH_SIZE]).ids.numpy()})

    runs: dict[str, Callable[[list[list[str]]], object]] = {
        "embed": elmo.embed,
        "ONNX Runtime": run_onnx,
    }
    sentences = sample_sentences(args.sentences)
    words = sum(map(len, sentences))
    print(f"{words:,} words, {args.threads} threads, onnxruntime {onnxruntime.__version__}")
    for how, size in (("all at once", len(sentences)), ("one at a time", 1)):
        parts = [sentences[i : i + size] for i in range(0, len(sentences), size)]
        fastest = dict.fromkeys(runs, float("inf"))
        for _ in range(ROUNDS + 1):  # the first one warms up
            for name, run in runs.items():
                start = time.perf_counter()
                for part in parts:
                    run(part)
                fastest[name] = min(fastest[name], time.perf_counter() - start)
        for name, seconds in fastest.items():
            ratio = fastest["embed"] / seconds
            print(f"{how:14} {name:13} {words / seconds:7,.0f} words/s  {ratio:4.0%} of embed")


if __name__ == "__main__":
    main()
