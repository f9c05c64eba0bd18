"""The corpus of a model in memory: exact search by any mix of layers.

J layers, N words, D dim.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Float32

from elmore.analysis.neighbors import Neighbor, Occurrence
from elmore.embedder import Embedder
from elmore.errors import InputError

MAX_WORDS = 100_000
"""Words of a corpus; with the English model, 100,000 take 0.6 GB."""


class Corpus:
    """The words of a text with the vectors of all layers.

    Args:
        embedder: The model.
        lines: Sentences.

    Raises:
        InputError: If the text has no words, or more than `MAX_WORDS`.
    """

    def __init__(self, embedder: Embedder, lines: Iterable[str]) -> None:
        self.sentences: list[list[str]] = []
        arrays: list[Float32[np.ndarray, "J W D"]] = []
        size = 0
        for tokens, vectors in embedder.stream(lines):
            self.sentences.append(tokens)
            arrays.append(vectors)
            size += len(tokens)
            if size > MAX_WORDS:
                raise InputError(f"expected a corpus of up to {MAX_WORDS:,} words")
        if not size:
            raise InputError("expected a corpus with one sentence per line, found no words")
        self._vectors = np.concatenate(arrays, axis=1)  # (J, N, D)
        # Products of the layers of a word give the length of any mix of them.
        self._products = np.einsum("ind,jnd->nij", self._vectors, self._vectors)
        lengths = [len(tokens) for tokens in self.sentences]
        self._lines = np.repeat(np.arange(len(lengths)), lengths)
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._folded = np.array([t.casefold() for tokens in self.sentences for t in tokens])

    def similarities(
        self, query: Float32[np.ndarray, "J D"], weights: Sequence[float]
    ) -> Float[np.ndarray, " N"]:
        """Return the cosine similarity of each word to the query, both mixed with the weights."""
        s = np.array(weights, dtype=np.float32)
        mixed = s @ query
        dots = sum(w * (layer @ mixed) for w, layer in zip(s, self._vectors, strict=True) if w)
        squares = np.einsum("nij,i,j->n", self._products, s, s)
        lengths = np.sqrt(np.maximum(squares, 0)) * np.linalg.norm(mixed)
        return dots / np.maximum(lengths, np.finfo(np.float32).tiny)

    def search(
        self,
        query: Occurrence,
        vectors: Float32[np.ndarray, "J D"],
        weights: Sequence[float],
        k: int,
    ) -> list[Neighbor]:
        """Return the k most similar words, without the query's own sentence; ties in order."""
        # Equal words have equal vectors at layer 0, up to rounding.
        similarities = self.similarities(vectors, weights).round(6)
        results = []
        for n in np.argsort(-similarities, kind="stable").tolist():
            occurrence = self.occurrence(n)
            if occurrence.tokens != query.tokens:
                results.append(Neighbor(float(similarities[n]), int(self._lines[n]), occurrence))
                if len(results) == k:
                    break
        return results

    def occurrence(self, n: int) -> Occurrence:
        """Return word n of the corpus in its sentence."""
        line = int(self._lines[n])
        return Occurrence(self.sentences[line], n - int(self._starts[line]))

    def occurrences(
        self, word: str, weights: Sequence[float], limit: int = 300
    ) -> tuple[list[int], list[Occurrence], Float32[np.ndarray, "N D"]]:
        """Return lines, occurrences and mixed vectors of a word, in any case, up to `limit`."""
        rows = np.flatnonzero(self._folded == word.casefold())[:limit]
        mixed = np.einsum("j,jnd->nd", np.array(weights, np.float32), self._vectors[:, rows])
        return self._lines[rows].tolist(), [self.occurrence(n) for n in rows.tolist()], mixed
