"""Words per second through other libraries, relative to `Embedder.embed`, in one run on a CPU.

Run as: python benchmarks/doors.py [MODEL]

MODEL is a directory or the name of an installed model; by default the English one. All libraries
embed the same texts, with all words cached. spaCy tokenizes them with its own tokenizer, the others
with Moses; the texts are such that the tokens are the same.
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import spacy
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import elmore
import elmore.integrations.huggingface
from elmore.checkpoint.pretrained import find_model
from elmore.integrations.sklearn import ElmoVectorizer

NUM_TEXTS = 512
ROUNDS = 3  # over all libraries, because the speed of a shared machine varies
BATCH_SIZE = 32  # texts, the default of sentence-transformers


def sample_texts() -> list[str]:
    """Return random texts of about 26 words, with word frequencies by Zipf's law."""
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(5000)]
    tokenizer = spacy.blank("en").tokenizer
    words = [w for w in words if len(tokenizer(f"{w} {w}.")) == 3]  # unlike "id" and "s."
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lengths = [max(4, round(rng.gauss(26, 10))) for _ in range(NUM_TEXTS)]
    return [" ".join(rng.choices(words, weights, k=length)) + "." for length in lengths]


def open_transformers(folder: Path) -> Callable[[list[str]], object]:
    """Return a function that embeds texts in batches with `AutoModel`."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)

    def embed(texts: list[str]) -> list[object]:
        batches = (texts[i : i + BATCH_SIZE] for i in range(0, len(texts), BATCH_SIZE))
        return [model(**tokenizer(x, padding=True, return_tensors="pt")) for x in batches]

    return embed


def open_spacy(folder: Path) -> Callable[[list[str]], object]:
    """Return a function that embeds texts with the component `elmore`."""
    nlp = spacy.blank("en")
    nlp.add_pipe("elmore", config={"model": str(folder), "device": "cpu"})
    return lambda texts: list(nlp.pipe(texts))


def check_tokens(texts: list[str]) -> None:
    """Raise if spaCy and Moses split the texts differently."""
    for doc in spacy.blank("en").pipe(texts):
        if [token.text for token in doc] != elmore.tokenize(doc.text):
            raise ValueError(f"spaCy and Moses split {doc.text!r} differently")


def main() -> None:
    """Print the speed of each library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="en")
    folder = find_model(parser.parse_args().model)
    elmo = elmore.load(folder, device="cpu")
    sentence_transformer = SentenceTransformer(str(folder), device="cpu")
    doors: dict[str, Callable[[list[str]], object]] = {
        "embed": lambda texts: elmo.embed(texts, layers="average"),
        "transformers": open_transformers(folder),
        "sentence-transformers": lambda x: sentence_transformer.encode(x, batch_size=BATCH_SIZE),
        "scikit-learn": ElmoVectorizer(folder, device="cpu").transform,
        "spaCy": open_spacy(folder),
    }
    texts = sample_texts()
    check_tokens(texts)
    words = sum(len(elmore.tokenize(text)) for text in texts)
    for embed in doors.values():
        embed(texts)  # fills the caches
    seconds: dict[str, list[float]] = {name: [] for name in doors}
    for _ in range(ROUNDS):
        for name, embed in doors.items():
            start = time.perf_counter()
            embed(texts)
            seconds[name].append(time.perf_counter() - start)
    fastest = {name: min(times) for name, times in seconds.items()}
    for name, best in fastest.items():
        print(f"{name:22} {words / best:8,.0f} words/s  {fastest['embed'] / best:4.0%} of embed")


if __name__ == "__main__":
    main()
