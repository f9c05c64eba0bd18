"""Build an index of the words of a corpus, in bounded memory.

1. Tokenize the corpus into an Arrow file.
2. Embed a random sample of it, and train the quantizers of faiss on the sample.
3. Embed the corpus, and write its vectors to parts of the index.
4. Compare the index with an exact search, which runs along with step 3.

N words, D dim.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float32

import elmore
from elmore.analysis.neighbors import ExactSearch, Occurrence, query_vectors, unit
from elmore.atomic import atomic_folder, lock, refuse_existing
from elmore.embedder import Embedder, get_embedder
from elmore.errors import InputError, require
from elmore.inference.layers import check_layer
from elmore.integrations.search.index import WordIndex
from elmore.integrations.search.manifest import (
    FILES,
    PART,
    SENTENCES,
    FileRecord,
    Kind,
    Manifest,
    ModelRecord,
)
from elmore.integrations.search.sentences import SentenceFile, write_sentences
from elmore.progress import Progress, track
from elmore.schema import check, one_of
from elmore.text.lines import read_lines
from elmore.text.tokenize import get_tokenizer
from elmore.vectors.embed_file import model_files

_MAX_FLAT, _MAX_SQ8 = 50_000, 20_000_000  # words
_SAMPLES_PER_LIST = 64  # faiss warns below 39
_MIN_PQ = 10_000  # words, to train 256 centroids of each part of a vector
_PROBES = 32
_CANDIDATES: dict[Kind, int] = {"flat": 1, "ivf-sq8": 2, "ivf-pq": 10}
_BLOCK_WORDS = 2**14
_PART_BYTES = 2**29  # of codes, in memory while a part is built
_QUERIES, _K = 100, 10  # to measure recall@10
_TOLERANCE = 1e-5  # rounding depends on the batch of a sentence


class BuiltIndex(NamedTuple):
    """The folder, its manifest, and the seconds it took."""

    folder: Path
    manifest: Manifest
    seconds: float


def build_index(
    text: Path | str,
    output: Path | str,
    *,
    model: Embedder | Path | str | None = None,
    layer: Literal["top", "average"] | int = "top",
    kind: Kind | None = None,
    replace_invalid: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **load_options: Any,
) -> BuiltIndex:
    """Build an index of the words of a text file, one sentence per line.

    Args:
        text: UTF-8, plain, .gz, .xz, .bz2 or .zst; `-` is standard input.
        output: Folder to write.
        model: What `elmore.load` takes, or an `Embedder`.
        layer: `top`, `average` or the index of a layer.
        kind: `flat` stores vectors in float32 and searches all of them; `ivf-sq8` stores one byte
            per dimension and searches some clusters of vectors; `ivf-pq` stores one byte per 8
            dimensions. By default chosen by the number of words: flat up to 50,000, ivf-sq8 up to
            20 million.
        replace_invalid: Replace invalid UTF-8 and NUL with U+FFFD.
        overwrite: Replace an existing index.
        progress: See `elmore.embed_file`.
        load_options: The other arguments of `elmore.load`.
    """
    require("faiss", extra="search")
    began = time.monotonic()
    text, output = Path(text), Path(output)
    check("kind", kind, one_of(*_CANDIDATES), optional=True)
    inputs = [text, *model_files(model, load_options)]
    with lock(output):
        refuse_existing(output, overwrite=overwrite, contents=FILES, inputs=inputs)
        embedder = get_embedder(model, load_options)
        check_layer(layer, embedder.num_layers)
        with atomic_folder(output) as folder:
            tokenize = get_tokenizer(embedder.tokenizer, embedder.language)
            lines = read_lines(text, replace_invalid=replace_invalid)
            shown = track(lines, "sentences read", progress)
            write_sentences(folder / SENTENCES, map(tokenize, shown))
            manifest = _build(folder, embedder, layer, kind, progress)
            manifest.write(folder)
    return BuiltIndex(output, manifest, time.monotonic() - began)


def _build(
    folder: Path,
    embedder: Embedder,
    layer: Literal["top", "average"] | int,
    kind: Kind | None,
    progress: Progress | None,
) -> Manifest:
    """Write the faiss index of the sentences in a folder; return its manifest."""
    faiss = require("faiss", extra="search")
    sentences = SentenceFile(folder / SENTENCES)
    words, rng = sentences.num_words, np.random.default_rng(0)
    if not words:
        raise InputError("the text has no words; expected one sentence per line")
    kind = kind or _choose_kind(words)
    if kind == "ivf-pq" and words < _MIN_PQ:
        raise InputError(
            f"an index of the kind ivf-pq needs at least {_MIN_PQ:,} words, got {words:,}; use "
            "flat or ivf-sq8"
        )
    lists = 1 if kind == "flat" else max(1, min(math.isqrt(words), words // _SAMPLES_PER_LIST))
    factory = f"IVF{lists},{_factory(kind, embedder.dim)}"
    index = faiss.index_factory(embedder.dim, factory, faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # no warning about a single list of few words
    samples = max(lists * _SAMPLES_PER_LIST, _MIN_PQ)
    index.train(_sample(embedder, layer, sentences, samples, rng, progress))
    queries = [
        _occurrence(sentences, row) for row in rng.choice(words, min(words, _QUERIES), False)
    ]
    exact = ExactSearch(queries, query_vectors(embedder, queries, layer), k=_K)
    stream = embedder.stream(sentences, layers=layer)
    shown = track(stream, f"of {len(sentences):,} sentences embedded", progress)
    _write_parts(index, _blocks(shown, exact), folder)

    manifest = Manifest(
        elmore_version=elmore.__version__,
        model=ModelRecord.of(embedder),
        precision=embedder.precision,
        layer=layer,
        sentences=len(sentences),
        words=words,
        dim=embedder.dim,
        kind=kind,
        factory=factory,
        lists=lists,
        probes=min(lists, _PROBES),
        candidates=_CANDIDATES[kind],
        recall_at_10=math.nan,
        recall_queries=len(queries),
        files=tuple(FileRecord.of(path) for path in sorted(folder.iterdir())),
    )
    recall = _recall(WordIndex._of_files(folder, manifest), embedder, queries, exact)
    return replace(manifest, recall_at_10=recall)


def _choose_kind(words: int) -> Kind:
    if words <= _MAX_FLAT:
        return "flat"
    return "ivf-sq8" if words <= _MAX_SQ8 else "ivf-pq"


def _factory(kind: Kind, dim: int) -> str:
    """Return the code of a vector, as faiss's `index_factory` takes it."""
    if kind == "ivf-pq":  # as many equal parts as 8 dimensions each would be, or fewer
        return f"PQ{next(parts for parts in range(max(1, dim // 8), 0, -1) if dim % parts == 0)}"
    return {"flat": "Flat", "ivf-sq8": "SQ8"}[kind]


def _sample(
    embedder: Embedder,
    layer: Literal["top", "average"] | int,
    sentences: SentenceFile,
    words: int,
    rng: np.random.Generator,
    progress: Progress | None,
) -> Float32[np.ndarray, "N D"]:
    """Return the vectors of about as many words, of random sentences."""

    def chosen() -> Iterator[list[str]]:
        count = 0
        for line in rng.permutation(len(sentences)).tolist():
            if count >= words:
                return
            tokens = sentences[line]
            count += len(tokens)
            yield tokens

    stream: Iterable[Any] = embedder.stream(chosen(), layers=layer)
    shown = track(stream, "sentences sampled", progress)
    return np.concatenate([unit(vectors) for _, vectors in shown])


def _occurrence(sentences: SentenceFile, word: int) -> Occurrence:
    line = sentences.line_of(word)
    return Occurrence(sentences[line], int(word) - sentences.first_word(line))


def _blocks(stream: Iterable[Any], exact: ExactSearch) -> Iterator[Float32[np.ndarray, "N D"]]:
    """Yield vectors of unit length, a block at a time, after an exact search of their sentences."""
    pending: list[np.ndarray] = []
    size = 0
    for line, (tokens, vectors) in enumerate(stream):
        exact.add(line, tokens, vectors)
        pending.append(unit(vectors))
        size += len(vectors)
        if size >= _BLOCK_WORDS:
            yield np.concatenate(pending)
            pending, size = [], 0
    if size:
        yield np.concatenate(pending)


def _write_parts(index: Any, blocks: Iterable[Float32[np.ndarray, "N D"]], folder: Path) -> None:
    """Add vectors to a trained index, and write it each time it reaches the size of a part."""
    start = parts = 0
    for block in blocks:
        index.add_with_ids(block, np.arange(start, start + len(block)))
        start += len(block)
        if index.ntotal * index.code_size >= _PART_BYTES:
            _write(index, folder / PART.format(parts))
            index.reset()
            parts += 1
    if index.ntotal:
        _write(index, folder / PART.format(parts))


def _write(index: Any, path: Path) -> None:
    try:
        require("faiss", extra="search").write_index(index, str(path))
    except RuntimeError as error:  # a full disk, for example
        raise OSError(f"cannot write {path}: {error}") from error


def _recall(
    index: WordIndex, embedder: Embedder, queries: list[Occurrence], exact: ExactSearch
) -> float:
    """Return the mean share of the nearest neighbors that the index finds."""
    shares = []
    found = index.nearest_neighbors(embedder, queries, k=_K)
    for results, expected in zip(found, exact.results, strict=True):
        if expected:
            # As similar as the last one: of equal sentences, any may be found.
            threshold = expected[-1].similarity - _TOLERANCE
            similar = sum(neighbor.similarity >= threshold for neighbor in results)
            shares.append(similar / len(expected))
    return float(np.mean(shares)) if shares else 1.0
