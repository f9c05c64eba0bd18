"""A model of the server: a batch of requests in, their answers out.

J layers, W words, D dim.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from elmore.analysis.clusters import cluster
from elmore.analysis.filters import match_filters
from elmore.analysis.neighbors import Occurrence, parse_query, unit
from elmore.analysis.senses import project
from elmore.bilm.token_encoder import CharEncoder
from elmore.checkpoint.pretrained import find_model, read_pretrained
from elmore.embedder import Embedder
from elmore.embedder import load as load_embedder
from elmore.errors import InputError
from elmore.inference.batches import Embedded
from elmore.inference.layers import check_layer, check_layers, select_layers
from elmore.server import schemas
from elmore.server.bodies import BYTES_PER_NUMBER, as_json, embedded_sentences, refuse
from elmore.server.corpus import Corpus
from elmore.server.messages import Answer
from elmore.server.setup import Setup
from elmore.text.characters import BOW, EOW, PAD, encode_words
from elmore.text.lines import read_lines
from elmore.text.tokenize import get_tokenizer

SAMPLE_CORPORA = {
    language: Path(__file__).with_name(f"corpus.{language}.txt") for language in ("en", "ko")
}
"""Sentences by language: those of examples/corpus.txt and examples/senses-ko.tsv."""

logger = logging.getLogger("elmore.server")

_MARKERS = {BOW: "BOW", EOW: "EOW", PAD: "PAD"}

ModelRequest = (
    schemas.EmbedRequest
    | schemas.TokenizeRequest
    | schemas.SimilarityRequest
    | schemas.NeighborsRequest
    | schemas.MapRequest
    | schemas.InsideRequest
)


class _CorpusNotReadyError(Exception):
    """The corpus has not been embedded yet. The worker does not wait: others are in the queue."""


class LoadedModel:
    """A model, and the corpus in which its neighbors are searched."""

    def __init__(self, name: str, source: str, setup: Setup) -> None:
        self.name = name
        self._path = find_model(source)
        self.embedder = load_embedder(self._path, device=setup.device, precision=setup.precision)
        self._limits = setup.limits
        sample = SAMPLE_CORPORA.get(self.embedder.language)
        path = Path(setup.corpora[name]) if name in setup.corpora else sample
        self._corpus: Future[Corpus] | None = None
        self._corpus_sentences = 0
        if path is not None:
            lines = list(read_lines(path))
            if not any(map(str.strip, lines)):
                raise InputError(f"{path} has no words; expected one sentence per line")
            self._corpus_sentences = len(lines)
            # In the background, as other requests need not wait for it.
            pool = ThreadPoolExecutor(1)
            self._corpus = pool.submit(_embed_corpus, self.embedder, path, lines)
            pool.shutdown(wait=False)

    def wait_for_corpus(self) -> None:
        """Return when neighbors can be searched."""
        if self._corpus is not None:
            self._corpus.result()

    def describe(self) -> dict[str, Any]:
        """Return the facts of `schemas.ModelInfo`."""
        elmo = self.embedder
        return {
            "name": self.name,
            "language": elmo.language,
            "tokenizer": elmo.tokenizer,
            "precision": elmo.precision,
            "layers": elmo.num_layers,
            "dim": elmo.dim,
            "weights_hash": elmo.weights_hash,
            "reads_characters": elmo.config.vocab_size is None,
            "corpus_sentences": self._corpus_sentences if self._corpus else None,
        }

    def answer(self, requests: Sequence[ModelRequest]) -> list[Answer]:
        """Answer requests; the sentences of all of them are embedded together."""
        tokenized: list[list[list[str]] | Answer] = []
        for request in requests:
            try:
                tokenized.append(self._tokenize(request))
            except InputError as error:
                tokenized.append(refuse(error))
        needed = [
            sentence
            for request, sentences in zip(requests, tokenized, strict=True)
            if not isinstance(request, schemas.TokenizeRequest) and isinstance(sentences, list)
            for sentence in sentences
        ]
        vectors = iter(self.embedder.embed(needed))
        return [
            sentences
            if isinstance(sentences, Answer)
            else self._finish(request, sentences, vectors)
            for request, sentences in zip(requests, tokenized, strict=True)
        ]

    def _tokenize(self, request: ModelRequest) -> list[list[str]]:
        """Return the sentences of a request; raise `InputError` if they exceed the limits."""
        tokenize = get_tokenizer(self.embedder.tokenizer, self.embedder.language)
        match request:
            case schemas.EmbedRequest():
                check_layers(request.layers, self.embedder.num_layers)
                sentences = [tokenize(s) if isinstance(s, str) else s for s in request.sentences()]
            case schemas.TokenizeRequest():
                sentences = [tokenize(text) for text in request.texts]
            case schemas.SimilarityRequest():
                sentences = [self._find(word).tokens for word in (request.first, request.second)]
            case schemas.NeighborsRequest() | schemas.MapRequest():
                self._weights(request)
                sentences = [self._find(request.word).tokens]
            case schemas.InsideRequest():
                sentences = [self._find(request.word).tokens]
        self._limits.check_tokens([len(sentence) for sentence in sentences])
        self._check_response(request, sentences)
        return sentences

    def _check_response(self, request: ModelRequest, sentences: list[list[str]]) -> None:
        """Raise `InputError` if a response would be too large."""
        J, lengths = self.embedder.num_layers, list(map(len, sentences))
        match request:
            case schemas.EmbedRequest():
                vectors = sum(lengths) if request.pooling == "none" else len(lengths)
                size = BYTES_PER_NUMBER[request.format] * self.embedder.dim
                self._limits.check_response(vectors * (J if request.layers == "all" else 1), size)
            case schemas.SimilarityRequest(matrix=True):
                numbers = J * lengths[0] * lengths[1]
                self._limits.check_response(numbers, BYTES_PER_NUMBER["json"])

    def _finish(
        self, request: ModelRequest, sentences: list[list[str]], vectors: Iterator[np.ndarray]
    ) -> Answer:
        if isinstance(request, schemas.TokenizeRequest):
            return as_json({"tokens": sentences})
        arrays = [next(vectors) for _ in sentences]
        try:
            match request:
                case schemas.EmbedRequest():
                    layers = request.layers
                    chosen = [select_layers(torch.from_numpy(a), layers).numpy() for a in arrays]
                    embedded = list(map(Embedded, sentences, chosen))
                    return embedded_sentences(request, self.name, embedded)
                case schemas.SimilarityRequest():
                    return as_json(self._compare(request, arrays[0], arrays[1]))
                case schemas.NeighborsRequest():
                    return as_json(self._neighbors(request, arrays[0]))
                case schemas.MapRequest():
                    return as_json(self._map(request, arrays[0]))
                case schemas.InsideRequest():
                    return as_json(self._inside(request, arrays[0]))
        except InputError as error:
            return refuse(error)
        except _CorpusNotReadyError:
            answer = as_json({"detail": "the corpus is being embedded; try again in 2 s"}, 429)
            return answer._replace(headers=(("Retry-After", "2"),))

    def _find(self, word: schemas.Word) -> Occurrence:
        if word.text is not None:
            return parse_query(word.text, self.embedder.tokenizer, self.embedder.language)
        assert word.tokens is not None and word.position is not None  # noqa: PT018
        return Occurrence(word.tokens, word.position)

    def _weights(self, request: schemas.NeighborsRequest | schemas.MapRequest) -> list[float]:
        """Return the weight of each layer in the vectors to compare."""
        J = self.embedder.num_layers
        if request.mix is not None:
            if len(request.mix.weights) != J:
                raise InputError(
                    f"expected {J} weights, one per layer, got {len(request.mix.weights)}"
                )
            return request.mix.softmax()
        check_layer(request.layer, J)
        if request.layer == "average":
            return [1 / J] * J
        one = J - 1 if request.layer == "top" else request.layer
        return [float(j == one) for j in range(J)]

    def _compare(
        self,
        request: schemas.SimilarityRequest,
        first: Float32[np.ndarray, "J W D"],
        second: Float32[np.ndarray, "J W D"],
    ) -> dict[str, Any]:
        a, b = self._find(request.first), self._find(request.second)
        x, y = first[:, a.position], second[:, b.position]  # (J, D)
        matrix = unit(first) @ unit(second).swapaxes(1, 2) if request.matrix else None
        return {
            "first": _as_dict(a),
            "second": _as_dict(b),
            "layers": (unit(x) * unit(y)).sum(axis=-1).tolist(),
            "average": float(unit(x.mean(axis=0)) @ unit(y.mean(axis=0))),
            "matrix": matrix,
        }

    def _require_corpus(self) -> Corpus:
        if self._corpus is None:
            raise InputError(
                f"there is no corpus for the model {self.name}; the server needs to be started "
                f"with one, --corpus {self.name}=FILE"
            )
        if not self._corpus.done():
            raise _CorpusNotReadyError
        return self._corpus.result()

    def _neighbors(
        self, request: schemas.NeighborsRequest, vectors: Float32[np.ndarray, "J W D"]
    ) -> dict[str, Any]:
        query, weights = self._find(request.word), self._weights(request)
        of_word = vectors[:, query.position]
        gamma = request.mix.gamma if request.mix else 1.0
        results = self._require_corpus().search(query, of_word, weights, request.k)
        return {
            "query": _as_dict(query),
            "length": abs(gamma) * float(np.linalg.norm(np.array(weights, np.float32) @ of_word)),
            "neighbors": [
                {"similarity": n.similarity, "line": n.line, **_as_dict(n.occurrence)}
                for n in results
            ],
        }

    def _map(
        self, request: schemas.MapRequest, vectors: Float32[np.ndarray, "J W D"]
    ) -> dict[str, Any]:
        query, weights = self._find(request.word), self._weights(request)
        lines, occurrences, mixed = self._require_corpus().occurrences(query.word, weights)
        own = np.array(weights, np.float32) @ vectors[:, query.position]
        units = unit(np.vstack([own, mixed]))
        rows = zip(
            [None, *lines],
            [query, *occurrences],
            project(units).tolist(),
            cluster(units).tolist(),
            strict=True,
        )
        return {
            "points": [
                {"x": x, "y": y, "cluster": label, "line": line, **_as_dict(occurrence)}
                for line, occurrence, (x, y), label in rows
            ]
        }

    def _inside(
        self, request: schemas.InsideRequest, vectors: Float32[np.ndarray, "J W D"]
    ) -> dict[str, Any]:
        query = self._find(request.word)
        of_word = vectors[:, query.position]
        units = unit(of_word)
        ids, groups = [], []
        if self._characters is not None:
            row = encode_words([query.word], self.embedder.config.max_characters, warn=False)[0]
            groups = match_filters(self._characters, row)
            ids = _describe_ids([i for i in row.tolist() if i != PAD], query.word)
        return {
            "query": _as_dict(query),
            "bytes": ids,
            "filters": [
                {**group._asdict(), "strongest": [match._asdict() for match in group.strongest]}
                for group in groups
            ],
            "layers": [
                {"layer": j, "norm": norm, "similarity": cosine, "values": values}
                for j, (norm, cosine, values) in enumerate(
                    zip(
                        np.linalg.norm(of_word, axis=-1).tolist(),
                        (units @ units[0]).tolist(),
                        of_word.tolist(),
                        strict=True,
                    )
                )
            ],
        }

    @cached_property
    def _characters(self) -> CharEncoder | None:
        """The character filters, or None for a model that reads word ids."""
        encoder = read_pretrained(self._path).bilm.encode
        if not isinstance(encoder, CharEncoder):
            return None
        encoder.highways = torch.nn.Sequential()  # not needed here, and most of its memory
        return encoder


def _embed_corpus(embedder: Embedder, path: Path, lines: list[str]) -> Corpus:
    try:
        return Corpus(embedder, lines)
    except Exception as error:
        # Clients are told the reason, but only the operator of the server can choose another file.
        logger.error("neighbors cannot be searched in %s: %s", path, error)
        raise


def _as_dict(occurrence: Occurrence) -> dict[str, Any]:
    return {
        "word": occurrence.word,
        "position": occurrence.position,
        "tokens": occurrence.tokens,
    }


def _describe_ids(ids: Sequence[int], word: str) -> list[dict[str, Any]]:
    """Return the ids of a word with the character that starts at each byte."""
    characters: list[str | None] = []
    for char in word:
        size = len(char.encode("utf-8", "ignore"))
        characters += [char, *[None] * (size - 1)] if size else []
    rows = []
    for position, i in enumerate(ids):
        is_byte = 0 < i <= 256
        index = position - 1
        rows.append(
            {
                "id": i,
                "value": f"{i - 1:02x}" if is_byte else _MARKERS.get(i, word),
                "character": characters[index] if is_byte and index < len(characters) else None,
            }
        )
    return rows
