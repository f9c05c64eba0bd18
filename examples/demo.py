"""Embed a sample text: the shapes that come out, and the file that is written.

Run as: make demo
"""

from pathlib import Path

import torch

import elmore
from elmore.bilm.config import BiLMConfig
from elmore.vectors.parts import write_vectors
from elmore.vectors.rows import VectorForm, VectorRow

SAMPLE = Path(__file__).with_name("sample.txt")
OUTPUT = Path("demo-output") / "vectors.parquet"


def main() -> None:
    """Print what a first user wants to see."""
    torch.manual_seed(0)
    bilm = elmore.BiLM(BiLMConfig.tiny())
    elmo = elmore.Embedder(bilm, tokenizer="whitespace")
    print("A tiny biLM with random weights: the shapes are right, the vectors mean nothing yet.")

    sentences = SAMPLE.read_text(encoding="utf-8").splitlines()
    rows = [VectorRow(i, *embedded) for i, embedded in enumerate(elmo.stream(sentences))]
    for row in rows:
        print(f"  {row.vectors.shape!s:13} {' '.join(row.tokens)}")
    print("  (layers, words, dimensions)")

    # The same word, two sentences: layer 0 knows no context, the top layer does.
    banks = [row.vectors[:, row.tokens.index("bank")] for row in rows if "bank" in row.tokens]
    cosines = torch.cosine_similarity(*map(torch.from_numpy, banks), dim=-1)
    print('"bank" by the river and "bank" with the rates, cosine by layer:')
    print("  " + "  ".join(f"layer {j}: {cosine:.3f}" for j, cosine in enumerate(cosines)))

    form = VectorForm(elmo.num_layers, elmo.dim, "float32")
    count = write_vectors(OUTPUT, lambda start: iter(rows[start:]), form, overwrite=True)
    print(f"{count} sentences -> {OUTPUT}")


if __name__ == "__main__":
    main()
