"""Search an index for the nearest neighbors of words in context.

faiss finds candidates by their compressed vectors. The model then embeds their sentences again and
compares them exactly, so similarities are exact, and only neighbors that are no candidates are
missed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from elmore.analysis.neighbors import (
    ExactSearch,
    Neighbor,
    Occurrence,
    parse_query,
    query_vectors,
)
from elmore.embedder import Embedder
from elmore.errors import InputError, require
from elmore.integrations.search.manifest import (
    SENTENCES,
    FileRecord,
    Manifest,
    ModelRecord,
    read_manifest,
)
from elmore.integrations.search.sentences import SentenceFile
from elmore.schema import at_least, check


class WordIndex:
    """An index of the words of a corpus. Its files are memory-mapped.

    Args:
        path: Folder written by `build_index` or `elmore index`.
        verify: Read all files and compare their checksums. By default only their sizes are
            compared.

    Raises:
        InputError: If a file is missing or damaged.
    """

    def __init__(self, path: Path | str, *, verify: bool = False) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        for file in self.manifest.files:
            if verify and FileRecord.of(self.path / file.name) != file:
                raise InputError(
                    f"{self.path / file.name} is damaged: its checksum differs from that in the "
                    "manifest. Copy or build the index again."
                )
        self._open(self.path, self.manifest)

    @classmethod
    def _of_files(cls, folder: Path, manifest: Manifest) -> "WordIndex":
        """Open an index whose manifest is not written yet."""
        index = cls.__new__(cls)
        index.path, index.manifest = folder, manifest
        index._open(folder, manifest)
        return index

    def _open(self, folder: Path, manifest: Manifest) -> None:
        faiss = require("faiss", extra="search")
        self.sentences = SentenceFile(folder / SENTENCES)
        self._parts: list[Any] = []
        for name in manifest.parts:
            try:
                part = faiss.read_index(str(folder / name), faiss.IO_FLAG_MMAP)
            except RuntimeError as error:
                raise InputError(
                    f"{folder / name} is not readable; build the index again"
                ) from error
            part.nprobe = manifest.probes
            self._parts.append(part)

    def __repr__(self) -> str:
        return (
            f"WordIndex({self.manifest.words:,} words of {self.manifest.sentences:,} sentences, "
            f"{self.manifest.kind}, layer={self.layer})"
        )

    @property
    def layer(self) -> Literal["top", "average"] | int:
        """The layer of the vectors."""
        return self.manifest.layer  # type: ignore[return-value]

    def check_model(self, embedder: Embedder) -> None:
        """Raise `InputError` unless the index was built with this model and its tokenization."""
        expected, given = self.manifest.model, ModelRecord.of(embedder)
        if (expected.tokenizer, expected.language) != (given.tokenizer, given.language):
            raise InputError(
                f"the text of {self.path} was split by the tokenizer {expected.tokenizer} for "
                f"{expected.language}, but the model is loaded with {given.tokenizer} for "
                f"{given.language}; load it with the tokenizer and language of the index"
            )
        if expected != given:
            raise InputError(
                f"{self.path} was built with another model, with the weights "
                f"{expected.weights_hash}; this one has {given.weights_hash}. Load the model that "
                "built the index."
            )

    def nearest_neighbors(
        self, embedder: Embedder, queries: Sequence[Occurrence | str], *, k: int = 5
    ) -> list[list[Neighbor]]:
        """Return the k words of the corpus that are most similar to each query, best first.

        A query is a word in context, or a sentence with that word in brackets, which is tokenized.
        Sentences equal to the query's own sentence are skipped. An index of the kind `flat` gives
        the results of `elmore.analysis.neighbors.nearest_neighbors`; others may miss neighbors.

        Args:
            embedder: The model that the index was built with.
            queries: Words in context.
            k: Number of neighbors of each query.
        """
        check("k", k, at_least(1))
        self.check_model(embedder)
        if isinstance(queries, str):
            raise TypeError(f"expected a list of queries, got one string ({queries[:40]!r})")
        occurrences = [
            parse_query(q, embedder.tokenizer, embedder.language) if isinstance(q, str) else q
            for q in queries
        ]
        if not occurrences:
            return []
        targets = query_vectors(embedder, occurrences, self.layer)
        searches = [
            ExactSearch([query], target[None], k=k)
            for query, target in zip(occurrences, targets, strict=True)
        ]
        searches_of_line: dict[int, list[ExactSearch]] = {}
        for query, target, search in zip(occurrences, targets, searches, strict=True):
            for line in self._candidates(query, target, k * self.manifest.candidates):
                searches_of_line.setdefault(line, []).append(search)
        lines = sorted(searches_of_line)
        sentences = embedder.stream(map(self.sentences.__getitem__, lines), layers=self.layer)
        for line, (tokens, vectors) in zip(lines, sentences, strict=True):
            for search in searches_of_line[line]:
                search.add(line, tokens, vectors)
        return [search.results[0] for search in searches]

    def _candidates(
        self, query: Occurrence, target: Float32[np.ndarray, " D"], count: int
    ) -> set[int]:
        """Return the numbers of the sentences of the nearest words."""
        size = count + len(query.tokens)  # the corpus may have the sentence of the query
        while True:
            lines = list(map(self.sentences.line_of, self._nearest_words(target, size)))
            others = [line for line in lines if self.sentences[line] != query.tokens]
            if len(others) >= count or len(lines) < size:
                return set(others)
            size *= 4

    def _nearest_words(self, target: Float32[np.ndarray, " D"], size: int) -> list[int]:
        """Return the numbers of the words that faiss finds, best first."""
        results = [part.search(target[None], size) for part in self._parts]
        similarities = np.concatenate([part[0] for part, _ in results])
        words = np.concatenate([part[0] for _, part in results])
        order = np.argsort(-similarities, kind="stable")
        words = words[order]
        return words[words >= 0][:size].tolist()  # faiss fills up with -1
