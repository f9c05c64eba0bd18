"""Tokens a second in training on a CPU, beside a plain loop over nn.LSTM(proj_size).

Both learn the same objective from the same windows: character CNN, two directions, sampled
softmax, clipping, AdamW. The plain one encodes every token and can't bound its cells.

Run as: python benchmarks/train_cpu.py [tiny|small|medium] [STREAMS]
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from memory import write_text
from torch import Tensor, nn

import elmore
from elmore.bilm.language_model import LanguageModel
from elmore.bilm.softmax import Softmax
from elmore.pretrain.step import train_step
from elmore.text.corpus import TextConfig, encode_corpus
from elmore.text.windows import LMBatch, Windows
from elmore.training.optim import clip_gradients, make_optimizer

STEPS, NEGATIVES, VOCABULARY = 8, 2048, 20_000


class Plain(nn.Module):
    """The model as one would write it down with what PyTorch has."""

    def __init__(self, config: elmore.BiLMConfig) -> None:
        super().__init__()
        self.encode = elmore.BiLM(config).encode
        self.lstms = nn.ModuleList(
            nn.LSTM(
                config.dim,
                config.cell_dim,
                config.num_layers,
                proj_size=config.dim,
                dropout=config.dropout,
                batch_first=True,
            )
            for _ in range(2)
        )
        self.softmax = Softmax(dim=config.dim, vocab_size=VOCABULARY)

    def forward(self, batch: LMBatch) -> Tensor:
        """Return the loss of a window."""
        x = self.encode(batch.distinct[batch.words])  # (2, B, T, D)
        h = torch.stack([lstm(text)[0] for lstm, text in zip(self.lstms, x, strict=True)])
        negatives = self.softmax.draw(NEGATIVES)
        return self.softmax(h.flatten(0, -2), batch.targets.flatten(), negatives).mean()


def main() -> None:
    """Print one line a program."""
    size = sys.argv[1] if len(sys.argv) > 1 else "small"
    streams = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    config = getattr(elmore.BiLMConfig, size)()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        write_text(text, 5000)
        lines = TextConfig(tokenizer="whitespace", sentences="lines")
        corpus = encode_corpus([text], Path(name), lines, workers=1)
        words = corpus.vocabulary(max_size=VOCABULARY, min_count=1)
        windows = Windows(
            corpus,
            targets=corpus.targets(words),
            max_characters=config.max_characters,
            rows=streams,
            steps=20,
            seed=0,
        )
        batches = [windows.next() for _ in range(STEPS + 1)]

    plain = Plain(config)
    optimizer = make_optimizer(plain, lr=1e-3)

    def step_plainly(batch: LMBatch) -> None:
        optimizer.zero_grad()
        plain(batch).backward()
        clip_gradients(plain.parameters(), 10)
        optimizer.step()

    model = LanguageModel(elmore.BiLM(config), Softmax(dim=config.dim, vocab_size=VOCABULARY))
    own = make_optimizer(model, lr=1e-3)
    state = model(batches[0]).state

    def step(batch: LMBatch) -> None:
        nonlocal state
        negatives = model.softmax.draw(NEGATIVES)
        state = train_step(model, own, batch, state, negatives, clip_norm=10).state

    print(f"{size}, {streams} streams of 20 tokens, {torch.get_num_threads()} threads")
    for what, run in (("nn.LSTM(proj_size)", step_plainly), ("elmore", step)):
        run(batches[0])
        began = time.perf_counter()
        for batch in batches[1:]:
            run(batch)
        speed = STEPS * streams * 20 / (time.perf_counter() - began)
        print(f"{what:20} {speed:8,.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
