"""Table 4: which words in a corpus are nearest to a word in its sentence?

Q queries, W words of a sentence, D dim.
"""

import bisect
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.tokenize import TokenizerName, get_tokenizer, tokenize_marked


class Occurrence(NamedTuple):
    """A word in a sentence."""

    tokens: list[str]
    position: int

    @property
    def word(self) -> str:
        """The word itself."""
        return self.tokens[self.position]

    def __str__(self) -> str:
        before, after = self.tokens[: self.position], self.tokens[self.position + 1 :]
        return " ".join([*before, f"[{self.word}]", *after])

    def excerpt(self, width: int = 36) -> str:
        """Return the word and the words that fit into `width` characters on either side of it.

        The left side is padded, so that excerpts one below the other have their words aligned.
        """
        before, after = self.tokens[: self.position], self.tokens[self.position + 1 :]
        backward = textwrap.shorten(" ".join(before)[::-1], width, placeholder=" ...")
        right = textwrap.shorten(" ".join(after), width, placeholder=" ...")
        return f"{backward[::-1]:>{width}} [{self.word}] {right}".rstrip()


class Neighbor(NamedTuple):
    """A word of the corpus, and how near it is."""

    similarity: float
    """Cosine of the two vectors."""

    line: int
    """The sentence's number in the corpus, from 0."""

    occurrence: Occurrence


def parse_query(text: str, tokenizer: TokenizerName = "moses") -> Occurrence:
    """Read a sentence with one word in brackets, as in `They put on a [play] .`."""
    example = "They put on a [play] last night ."
    return Occurrence(*tokenize_marked(text, get_tokenizer(tokenizer), example))


def nearest_neighbors(
    embedder: Embedder,
    queries: Sequence[Occurrence],
    corpus: Iterable[str | Sequence[str]],
    *,
    k: int = 5,
    layer: Literal["top", "average"] | int = "top",
) -> list[list[Neighbor]]:
    """Return, for each query, the k words of the corpus nearest to it, best first.

    The corpus is read once, as a stream, so it may be larger than memory. A query's own
    sentence, should the corpus have it, is left out.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    if not queries:
        return []
    sentences = embedder.embed([query.tokens for query in queries], layers=layer)
    targets = unit(np.stack([s[q.position] for s, q in zip(sentences, queries, strict=True)]))
    best: list[list[Neighbor]] = [[] for _ in queries]
    for line, (tokens, vectors) in enumerate(embedder.stream(corpus, layers=layer)):
        similarities = targets @ unit(vectors).T  # (Q, W)
        for query, row, kept in zip(queries, similarities, best, strict=True):
            if tokens != query.tokens:
                _keep_best(kept, k, tokens, line, row)
    return best


def _keep_best(
    kept: list[Neighbor],
    k: int,
    tokens: list[str],
    line: int,
    similarities: Float32[np.ndarray, " W"],
) -> None:
    """Insert a sentence's words into the k best so far; of equals the first stays first."""
    worst = kept[-1].similarity if len(kept) == k else -np.inf
    for position in np.flatnonzero(similarities > worst):
        found = Neighbor(float(similarities[position]), line, Occurrence(tokens, int(position)))
        bisect.insort_right(kept, found, key=lambda neighbor: -neighbor.similarity)
        del kept[k:]


def unit(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Scale vectors to length 1, so that a product is a cosine; a zero vector stays."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(length, np.finfo(np.float32).tiny)
