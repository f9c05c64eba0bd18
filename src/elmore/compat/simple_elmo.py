"""simple_elmo's `ElmoModel`, with the same results.

    from simple_elmo import ElmoModel                   # before
    from elmore.compat.simple_elmo import ElmoModel     # after

As in simple_elmo, each call starts from the zero state, runs the first batch once to warm up, and
carries the LSTM state of each row from batch to batch. The vectors of a text therefore depend on
the other texts of the call. Pass `stateful=False` to disable this.

S sentences, W words of the longest one, J layers, D = 2 * dim, V words in the vocabulary.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional

from elmore.bilm.softmax import Softmax
from elmore.checkpoint.pretrained import find_model, read_pretrained
from elmore.compat.stateful import StatefulBiLM
from elmore.device import Device, find_device
from elmore.embedder import get_word_encoder
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.layers import select_layers
from elmore.inference.padded import PaddedRunner
from elmore.schema import at_least, check, one_of
from elmore.text.sentences import (
    BOS_WORD,
    EOS_WORD,
    EncodeWords,
    Sentence,
    batch_sentences,
    check_sentence,
)
from elmore.text.vocabulary import Vocabulary

Layers = Literal["average", "top", "all"]

_FULL = "full=True needs a directory written by `elmore pretrain` or `elmore finetune`"

_logger = logging.getLogger(__name__)


class Candidates(TypedDict):
    """The most probable words at one position by one direction, most probable first."""

    candidates: list[int]
    """Vocabulary ids."""
    candidate_words: list[str]
    logp: list[float]
    """Log probabilities."""


class Substitutes(TypedDict):
    """A word of a sentence, and what each direction predicts in its place."""

    word: str
    forward: Candidates
    backward: Candidates


class _Model(NamedTuple):
    run: PaddedRunner
    encode_words: EncodeWords
    softmax: Softmax | None


class ElmoModel:
    """`simple_elmo.ElmoModel`: texts to NumPy arrays of float64.

    Args:
        stateful: Carry the LSTM state from batch to batch, as simple_elmo does. If False, a text
            has the same vectors in any call and any batch.
        device: `auto` uses a GPU if there is one.
    """

    def __init__(self, *, stateful: bool = True, device: Device = "auto") -> None:
        self.stateful = stateful
        self.device = find_device(device)
        self.batch_size = 32
        self.max_chars: int | None = None
        self.vector_size: int | None = None
        self.n_layers: int | None = None
        self.vocab: Vocabulary | None = None
        self._loaded: _Model | None = None

    def load(
        self,
        directory: Path | str,
        max_batch_size: int = 32,
        limit: int = 100,  # noqa: ARG002
        full: bool = False,
    ) -> str:
        """Load a model.

        Args:
            directory: A folder with `options.json` and `model.hdf5` or another HDF5 file; a ZIP
                archive of the NLPL repository; or any other model that `elmore.load` takes.
            max_batch_size: Number of texts that are computed together. Results depend on it if the
                state is carried.
            limit: Ignored: each distinct word is encoded once. A `vocab.txt` is not needed.
            full: Also load the softmax of a model that `elmore pretrain` wrote, for
                `get_elmo_substitutes`.

        Raises:
            InputError: If there is no such model, or with `full` no softmax.
        """
        check("max_batch_size", max_batch_size, at_least(1))
        path = find_model(directory)
        if (path / "model.hdf5").is_file():  # there may be other HDF5 files
            path = path / "model.hdf5"
        if full and (path / "checkpoint").is_file():
            raise InputError(f"{directory}: elmore does not read TensorFlow checkpoints; {_FULL}")
        read = read_pretrained(path, with_softmax=full)
        if full and read.softmax is None:
            raise InputError(f"{directory} has no softmax; {_FULL}")
        config = read.bilm.config
        softmax = read.softmax and read.softmax.to(self.device).requires_grad_(False)
        self._loaded = _Model(
            PaddedRunner(new_engine(read.bilm.to(self.device))),
            get_word_encoder(config, read.vocabulary),
            softmax,
        )
        self.vocab = read.vocabulary
        self.batch_size = max_batch_size
        self.max_chars = config.max_characters
        self.vector_size = 2 * config.dim
        self.n_layers = config.num_layers + 1
        return "The model is now loaded."

    def new_session(self) -> StatefulBiLM:
        """Return a session: it keeps the state from call to call if it is passed to them.

        It takes the place of the TensorFlow session that simple_elmo accepts.
        """
        return StatefulBiLM(self._model.run, stateful=self.stateful)

    def get_elmo_vectors(
        self,
        texts: Sequence[Sentence],
        warmup: bool = True,
        layers: Layers = "average",
        session: StatefulBiLM | None = None,
    ) -> Float64[np.ndarray, "S *J W D"]:
        """Return the vectors of all words, zero beyond the end of a text.

        Args:
            texts: Tokenized sentences or documents.
            warmup: Run the first batch once before it is embedded; without carried state, this has
                no effect.
            layers: The `average` of all layers (S, W, D), the `top` layer (S, W, D), or `all` of
                them (S, J, W, D).
            session: A session from `new_session`; by default a new one.
        """
        texts = _check_texts(texts)
        words = max(map(len, texts), default=0)
        vectors = np.zeros(self._shape(len(texts), layers, words))
        rows = self._embed_texts(texts, warmup, layers, session)
        for row, embedded in zip(vectors, rows, strict=True):
            row[..., : embedded.shape[-2], :] = embedded
        return vectors

    def get_elmo_vector_average(
        self,
        texts: Sequence[Sentence],
        warmup: bool = True,
        layers: Layers = "average",
        session: StatefulBiLM | None = None,
    ) -> Float64[np.ndarray, "S *J D"]:
        """Return the mean over the words of each text, scaled to a Euclidean norm of 1.

        With `all` layers, the norm is that of all of them together. A text without words has the
        zero vector. The arguments are those of `get_elmo_vectors`.
        """
        texts = _check_texts(texts)
        # Deviation: simple_elmo counts the padding of a batch as words and, with all layers, mixes
        # up words and layers.
        vectors = np.zeros(self._shape(len(texts), layers))
        rows = self._embed_texts(texts, warmup, layers, session)
        for i, embedded in enumerate(rows):
            if embedded.shape[-2]:
                mean = embedded.mean(axis=-2, dtype=np.float64)
                vectors[i] = mean / np.linalg.norm(mean)
        return vectors

    def warmup(self, sess: StatefulBiLM, texts: Sequence[Sentence]) -> None:
        """Run the first batch of texts, so that a session starts from the state after it.

        Args:
            sess: A session from `new_session`.
            texts: Tokenized sentences or documents.
        """
        session = self._check_session(sess)
        if session.stateful:
            first = _check_texts(texts)[: self.batch_size]
            _logger.info("Warming up ELMo on %d sentences", len(first))
            for _ in self._embed(first, "top", session):
                pass

    def get_elmo_substitutes(
        self, data: Sequence[str], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[Substitutes]]:
        """Return what each direction of the language model predicts in place of each word.

        Args:
            data: Sentences, with spaces between tokens.
            topn: Number of words per position and direction.
            nodelimiters: Never predict `<S>` or `</S>`.

        Raises:
            InputError: If the model was not loaded with `full=True`.
        """
        softmax, vocabulary = self._model.softmax, self.vocab
        if softmax is None or vocabulary is None:
            raise InputError(
                "substitutes need the softmax of the language model: load a model that `elmore "
                "pretrain` wrote, with full=True. Released HDF5 files have no softmax"
            )
        if isinstance(data, str):
            raise TypeError(f"expected a list of sentences, got one string ({data[:40]!r})")
        check("topn", topn, at_least(1))
        sentences = [sentence.split() for sentence in data]
        excluded = [*map(vocabulary.word_to_id, (BOS_WORD, EOS_WORD))] if nodelimiters else []
        # Deviation: simple_elmo predicts each word from the zero state and the word next to it.
        stateless = StatefulBiLM(self._model.run, stateful=False)
        results = []
        for words, top in zip(
            sentences, self._embed(sentences, "top", stateless, boundaries=True), strict=True
        ):
            forward, backward = torch.from_numpy(top).to(self.device).chunk(2, dim=-1)  # (T, dim)
            before = _predict(forward[:-2], softmax, vocabulary, topn, excluded)
            after = _predict(backward[2:], softmax, vocabulary, topn, excluded)
            results.append(
                [
                    Substitutes(word=word, forward=left, backward=right)
                    for word, left, right in zip(words, before, after, strict=True)
                ]
            )
        return results

    @property
    def _model(self) -> _Model:
        if self._loaded is None:
            raise InputError("no model is loaded; call load first")
        return self._loaded

    def _shape(self, texts: int, layers: Layers, *words: int) -> tuple[int, ...]:
        """Return the shape of a result; raise `InputError` unless `layers` is valid."""
        check("layers", layers, one_of("average", "top", "all"))
        config = self._model.run.engine.config
        return (
            texts,
            *((config.num_layers + 1,) if layers == "all" else ()),
            *words,
            2 * config.dim,
        )

    def _check_session(self, session: StatefulBiLM | None) -> StatefulBiLM:
        """Return the session or, for None, a new one; raise `InputError` for any other object."""
        if session is None:
            return self.new_session()
        if not isinstance(session, StatefulBiLM) or session.run is not self._model.run:
            raise InputError(
                f"expected a session of this model, got {type(session).__name__}. elmore does not "
                "use TensorFlow: omit session, or pass model.new_session() to keep the state "
                "between calls"
            )
        return session

    def _embed_texts(
        self,
        texts: Sequence[Sentence],
        warmup: bool,
        layers: Layers,
        session: StatefulBiLM | None,
    ) -> Iterator[Float[np.ndarray, "*J W D"]]:
        """Return the vectors of each text."""
        session = self._check_session(session)
        if warmup:
            self.warmup(session, texts)
        return self._embed(texts, layers, session)

    def _embed(
        self,
        texts: Sequence[Sentence],
        layers: Layers,
        session: StatefulBiLM,
        *,
        boundaries: bool = False,
    ) -> Iterator[Float[np.ndarray, "*J W D"]]:
        """Yield the vectors of each text, optionally with those of `<S>` and `</S>`."""
        for start in range(0, len(texts), self.batch_size):
            batch = texts[start : start + self.batch_size]
            _logger.info("Texts in the current batch: %d", len(batch))
            every = session(*batch_sentences(batch, self._model.encode_words))  # (B, J, T, D)
            vectors = select_layers(every.transpose(0, 1), layers)  # (*J, B, T, D)
            rows = vectors.movedim(-3, 0).cpu().numpy()  # (B, *J, T, D)
            for row, words in zip(rows, batch, strict=True):
                yield (
                    row[..., : len(words) + 2, :] if boundaries else row[..., 1 : len(words) + 1, :]
                )


def _check_texts(texts: Sequence[Sentence]) -> Sequence[Sentence]:
    if isinstance(texts, str):
        raise TypeError(f"expected a list of texts, got one string ({texts[:40]!r})")
    return [check_sentence(words, i) for i, words in enumerate(texts)]


def _predict(
    h: Float[Tensor, "W dim"],
    softmax: Softmax,
    vocabulary: Vocabulary,
    topn: int,
    excluded: Sequence[int],
) -> list[Candidates]:
    """Return the most probable words at each position, except for some ids."""
    log_probs = functional.linear(h, softmax.weight, softmax.bias).log_softmax(dim=-1)  # (W, V)
    log_probs[:, list(excluded)] = -torch.inf
    best = log_probs.topk(min(topn, len(vocabulary) - len(excluded)))
    return [
        Candidates(
            candidates=ids,
            candidate_words=[vocabulary.words[i] for i in ids],
            logp=[round(value, 4) for value in values],
        )
        for values, ids in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
