"""Contextual vectors of ambiguous words: print nearest neighbors, plot senses, write a vector file.

Run as: python examples/demo.py [MODEL]
"""

import sys
from pathlib import Path

import elmore
from elmore.analysis.neighbors import Neighbor, nearest_neighbors, parse_query
from elmore.analysis.senses import embed_senses, plot_senses, read_senses

EXAMPLES = Path(__file__).parent
OUTPUT = Path("demo-output")
COLUMN = 50  # width of the first column, in characters
QUERIES = [
    "The shortstop made a spectacular [play] on a ground ball.",
    "The actress agreed to star in a new [play] on Broadway.",
]


def main(model: str = "en") -> None:
    """Load a model and run all parts of the demo."""
    elmo = elmore.load(model)
    show_neighbors(elmo)
    show_senses(elmo)
    write_sample(elmo)
    print("\nTo explore the model in a browser: elmore serve")


def show_neighbors(elmo: elmore.Embedder) -> None:
    """Print the words nearest to "play" in two sentences, as in Table 4 of the paper."""
    corpus = (EXAMPLES / "corpus.txt").read_text(encoding="utf-8").splitlines()
    queries = [parse_query(query) for query in QUERIES]
    in_context = nearest_neighbors(elmo, queries, corpus)
    without_context = nearest_neighbors(elmo, queries, corpus, layer=0)
    print(f"Nearest neighbors among the words of {len(corpus)} sentences")
    for query, *columns in zip(queries, in_context, without_context, strict=True):
        print(f"\n{query}")
        print(f"  {'top layer: the word in its sentence':{COLUMN}}", end="")
        print("layer 0: the word without context")
        for left, right in zip(*map(excerpts, columns), strict=True):
            print(f"  {left:{COLUMN}}{right}")
    print()


def excerpts(neighbors: list[Neighbor]) -> list[str]:
    """Return the similarity and the context of each neighbor, nearest first."""
    return [f"{n.similarity:.3f} {n.occurrence.excerpt(17)}" for n in neighbors]


def show_senses(elmo: elmore.Embedder) -> None:
    """Print how well each layer separates the senses of a word, and plot the top layer."""
    words = embed_senses(elmo, read_senses(EXAMPLES / "senses.tsv", elmo.tokenizer, elmo.language))
    print("Share of occurrences whose nearest neighbor has the same sense:")
    print(" " * 10 + "".join(f"  layer {layer}" for layer in range(elmo.num_layers)))
    for word in words:
        print(f"  {word.word:8}" + "".join(f"{accuracy:9.0%}" for accuracy in word.accuracies()))
    plot_senses(words, OUTPUT / "senses.png")
    print(f"Plot of the top layer -> {OUTPUT / 'senses.png'}\n")


def write_sample(elmo: elmore.Embedder) -> None:
    """Write vectors to a file, like `elmore embed examples/sample.txt`."""
    path = OUTPUT / "vectors.parquet"
    result = elmore.embed_file(EXAMPLES / "sample.txt", path, model=elmo, overwrite=True)
    layers = f"{elmo.num_layers} layers of {elmo.dim} dimensions"
    print(f"{result.sentences} sentences, {layers} -> {result.file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
