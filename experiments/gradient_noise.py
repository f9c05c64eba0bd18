"""Noise and bias of the gradient: how much comes from the text, how much from sampled softmax?

The noise of a batch is the standard deviation of its gradient. The noise of the text is estimated
from two batches with the full softmax, that of the sampled softmax from several draws of negatives
for one batch; the bias is the difference between the mean of these and the full softmax.

Run as: python experiments/gradient_noise.py MODEL TEXT [--rows 256] [--negatives 2048 8192 32768]
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from elmore.bilm.language_model import LanguageModel
from elmore.bilm.model import BiLMState
from elmore.bilm.softmax import Negatives
from elmore.checkpoint.pretrained import read_pretrained
from elmore.text.corpus import TextConfig, encode_corpus
from elmore.text.windows import LMBatch, Windows

TOKENS, DRAWS = 20, 3


def gradients(
    model: LanguageModel, batch: LMBatch, state: BiLMState | None, negatives: Negatives | None
) -> dict[str, Tensor]:
    """Return one flat gradient per part of the model, without biases."""
    model.zero_grad(set_to_none=True)
    model(batch, state, negatives).loss.backward()
    parts: dict[str, list[Tensor]] = {"LSTMs": [], "character CNN": [], "softmax": []}
    for name, p in model.named_parameters():
        if p.ndim > 1 and p.grad is not None:
            part = "LSTMs" if "lstms" in name else "softmax" if "softmax" in name else None
            parts[part or "character CNN"].append(p.grad.flatten())
    return {part: torch.cat(grads) for part, grads in parts.items()}


def main() -> None:
    """Print one line per part of the model and source of noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--negatives", nargs="+", type=int, default=[2048, 8192, 32768])
    args = parser.parse_args()
    torch.manual_seed(0)
    saved = read_pretrained(args.model, with_softmax=True)
    if saved.softmax is None or saved.vocabulary is None:
        parser.error(f"{args.model} has no softmax")
    model = LanguageModel(saved.bilm, saved.softmax).float().eval().requires_grad_(True)
    config = TextConfig().for_model(saved.tokenization)
    corpus = encode_corpus([args.text], Path("~/.cache/elmore").expanduser(), config)
    windows = Windows(
        corpus,
        targets=corpus.targets(saved.vocabulary),
        max_characters=saved.bilm.config.max_characters,
        rows=args.rows,
        steps=TOKENS,
        seed=0,
    )
    first, second = windows.next(), windows.next()
    full = gradients(model, first, None, None)
    other = gradients(model, second, None, None)
    print(f"batches of {args.rows * TOKENS:,} tokens")
    for part, g in full.items():
        noise = (g - other[part]).norm() / 2**0.5
        print(f"{part:>14}  norm {g.norm():.4f}  noise of text {noise:.4f}", flush=True)
    for count in args.negatives:
        draws = [gradients(model, first, None, model.softmax.draw(count)) for _ in range(DRAWS)]
        for part, g in full.items():
            sampled = torch.stack([draw[part] for draw in draws])
            noise = sampled.std(dim=0).norm()
            bias = ((sampled.mean(dim=0) - g).norm() ** 2 - noise**2 / DRAWS).clamp(min=0).sqrt()
            print(f"{part:>14}  {count} negatives  noise {noise:.4f}  bias {bias:.4f}", flush=True)


if __name__ == "__main__":
    main()
