"""Training speed on a CPU in tokens per second: elmore and a plain model with nn.LSTM(proj_size).

Both models have the same architecture, and train on the same batches with sampled softmax, gradient
clipping and AdamW. The plain model encodes every token instead of every distinct word, and does not
clip cell states.

Run as: python benchmarks/train_cpu.py [tiny|small|medium] [ROWS]
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
TOKENS = 20  # per row of a batch


class PlainModel(nn.Module):
    """A biLM with nn.LSTM."""

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
        """Return the loss of a batch."""
        x = self.encode(batch.distinct[batch.words])  # (2, B, T, D)
        h = torch.stack([lstm(text)[0] for lstm, text in zip(self.lstms, x, strict=True)])
        negatives = self.softmax.draw(NEGATIVES)
        return self.softmax(h.flatten(0, -2), batch.targets.flatten(), negatives).mean()


def main() -> None:
    """Print one line per model."""
    size = sys.argv[1] if len(sys.argv) > 1 else "small"
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    config = getattr(elmore.BiLMConfig, size)()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        write_text(text, 5000)
        text_config = TextConfig(tokenizer="whitespace", sentences="lines")
        corpus = encode_corpus([text], Path(name), text_config, workers=1)
        vocabulary = corpus.vocabulary(max_size=VOCABULARY, min_count=1)
        windows = Windows(
            corpus,
            targets=corpus.targets(vocabulary),
            max_characters=config.max_characters,
            rows=rows,
            steps=TOKENS,
            seed=0,
        )
        batches = [windows.next() for _ in range(STEPS + 1)]

    plain = PlainModel(config)
    optimizer = make_optimizer(plain, lr=1e-3)

    def plain_step(batch: LMBatch) -> None:
        optimizer.zero_grad()
        plain(batch).backward()
        clip_gradients(plain.parameters(), 10)
        optimizer.step()

    model = LanguageModel(elmore.BiLM(config), Softmax(dim=config.dim, vocab_size=VOCABULARY))
    elmore_optimizer = make_optimizer(model, lr=1e-3)
    state = model(batches[0]).state

    def elmore_step(batch: LMBatch) -> None:
        nonlocal state
        negatives = model.softmax.draw(NEGATIVES)
        state = train_step(model, elmore_optimizer, batch, state, negatives, clip_norm=10).state

    print(f"{size}, {rows} rows of {TOKENS} tokens, {torch.get_num_threads()} threads")
    for name, run in (("nn.LSTM(proj_size)", plain_step), ("elmore", elmore_step)):
        run(batches[0])
        start = time.perf_counter()
        for batch in batches[1:]:
            run(batch)
        speed = STEPS * rows * TOKENS / (time.perf_counter() - start)
        print(f"{name:20} {speed:8,.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
