"""Table 4: nearest neighbors, in a corpus, of a word in context.

Q queries, W words of a sentence, D dim.
"""

import bisect
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embedder import Embedder
from elmore.inference.layers import check_layer
from elmore.schema import at_least, check
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
        """Return the word with up to `width` characters of context on either side.

        The left context is padded, so that the words of several excerpts line up.
        """
        before, after = self.tokens[: self.position], self.tokens[self.position + 1 :]
        backward = textwrap.shorten(" ".join(before)[::-1], width, placeholder=" ...")
        right = textwrap.shorten(" ".join(after), width, placeholder=" ...")
        return f"{backward[::-1]:>{width}} [{self.word}] {right}".rstrip()


class Neighbor(NamedTuple):
    """A word of the corpus and its similarity to the query."""

    similarity: float
    """Cosine similarity."""

    line: int
    """Index of the sentence in the corpus, from 0."""

    occurrence: Occurrence


def parse_query(
    text: str, tokenizer: TokenizerName | None = None, language: str | None = None
) -> Occurrence:
    """Parse a sentence with one word in brackets, such as `They put on a [play] .`.

    By default, it is tokenized by Moses for English; pass `embedder.tokenizer` and
    `embedder.language` for other models.
    """
    example = "They put on a [play] last night ."
    return Occurrence(*tokenize_marked(text, get_tokenizer(tokenizer, language), example))


def nearest_neighbors(
    embedder: Embedder,
    queries: Sequence[Occurrence | str],
    corpus: Iterable[str | Sequence[str]],
    *,
    k: int = 5,
    layer: Literal["top", "average"] | int = "top",
) -> list[list[Neighbor]]:
    """Return the k words of the corpus that are most similar to each query, best first.

    A query is a word in context, or a sentence with that word in brackets, which is tokenized like
    the text of the embedder. The corpus is read once and may be larger than memory. Sentences equal
    to the query's own sentence are skipped.
    """
    check("k", k, at_least(1))
    check_layer(layer, embedder.num_layers)
    if isinstance(queries, str):
        raise TypeError(f"expected a list of queries, got one string ({queries[:40]!r})")
    if not queries:
        return []
    occurrences = [
        parse_query(q, embedder.tokenizer, embedder.language) if isinstance(q, str) else q
        for q in queries
    ]
    search = ExactSearch(occurrences, query_vectors(embedder, occurrences, layer), k=k)
    for line, (tokens, vectors) in enumerate(embedder.stream(corpus, layers=layer)):
        search.add(line, tokens, vectors)
    return search.results


class ExactSearch:
    """The k nearest neighbors of each query among the sentences added so far.

    Args:
        queries: Words in context.
        targets: Their vectors, of unit length.
        k: Number of neighbors of each query.
    """

    def __init__(
        self, queries: Sequence[Occurrence], targets: Float[np.ndarray, "Q D"], *, k: int
    ) -> None:
        self._queries = queries
        self._targets = targets
        self._k = k
        self.results: list[list[Neighbor]] = [[] for _ in queries]
        """The neighbors of each query, best first."""

    def add(self, line: int, tokens: list[str], vectors: Float[np.ndarray, "W D"]) -> None:
        """Compare a sentence, except with queries of which it is the sentence."""
        similarities = self._targets @ unit(vectors).T  # (Q, W)
        for query, row, nearest in zip(self._queries, similarities, self.results, strict=True):
            if tokens == query.tokens:
                continue
            threshold = nearest[-1].similarity if len(nearest) == self._k else -np.inf
            for position in np.flatnonzero(row > threshold).tolist():
                neighbor = Neighbor(float(row[position]), line, Occurrence(tokens, position))
                # On the right of equal ones: ties keep the order of the corpus.
                bisect.insort_right(nearest, neighbor, key=lambda n: -n.similarity)
            del nearest[self._k :]


def query_vectors(
    embedder: Embedder, queries: Sequence[Occurrence], layer: Literal["top", "average"] | int
) -> Float[np.ndarray, "Q D"]:
    """Return the vectors of words in context, of unit length."""
    sentences = embedder.embed([query.tokens for query in queries], layers=layer)
    return unit(np.stack([s[q.position] for s, q in zip(sentences, queries, strict=True)]))


def unit(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Normalize vectors to unit length; zero vectors are unchanged."""
    norm = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norm, np.finfo(np.float32).tiny)
