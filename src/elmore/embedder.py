"""(4) Sentences in, arrays out: what most people use.

J layers, S sentences, N words, W words of a sentence, D = 2 * config.dim.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.directory import Dtype as WeightsDtype
from elmore.checkpoint.directory import new_directory, write_directory
from elmore.checkpoint.hash import hash_weights
from elmore.checkpoint.hub import parse_id
from elmore.checkpoint.pretrained import Pretrained, find_model, read_pretrained
from elmore.device import Device, find_device
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.batches import Embedded, SentenceRunner
from elmore.inference.engine import without_autograd
from elmore.inference.layers import Layers, check_layer, check_layers, select_layers
from elmore.inference.long import Select
from elmore.schema import at_least, check, one_of
from elmore.text.characters import encode_words
from elmore.text.script import warn_about_script
from elmore.text.sentences import (
    EncodeWords,
    Sentence,
    TokenBatch,
    batch_sentences,
    check_sentence,
    check_sentences,
)
from elmore.text.tokenize import TokenizerName, choose_tokenization, get_tokenizer
from elmore.text.vocabulary import Vocabulary
from elmore.transfer import to_device

Precision = Literal["fp32", "bf16", "int8"]
Dtype = Literal["float32", "float16"]

_BATCH_WORDS = {"cpu": 4096, "cuda": 65_536}
_BATCH_BYTES = {"cpu": 3 * 2**23, "cuda": 2**32}  # of all layers in float32


def load(
    model: Path | str | None = None,
    *,
    revision: str | None = None,
    options: Path | str | None = None,
    vocab: Path | str | None = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    tokenizer: TokenizerName | None = None,
    language: str | None = None,
) -> "Embedder":
    """Load a model to embed sentences with.

    Args:
        model: The name of an installed model, such as `en`; a directory written by elmore,
            released HDF5 weights, or an archive of either; or an id on the Hugging Face Hub,
            `user/model` or `user/model@revision`. A file or folder takes precedence over a model
            of the same name. By default the English model that ships with elmore.
        revision: Branch, tag or commit of a model on the Hugging Face Hub.
        options: The options.json of HDF5 weights; by default the one beside them.
        vocab: The vocabulary of a word-input model.
        device: `auto` uses a GPU if there is one.
        precision: `fp32` is full precision; `bf16` halves the memory and keeps about three
            significant digits; `int8`, for CPUs only, is faster still and keeps about two.
        tokenizer: For sentences given as strings; by default that of the model's training text, or
            `moses` if it is not known.
        language: ISO 639-1 code, for the rules of the tokenizer; by default that of the model's
            training text, or `en` if it is not known.

    Raises:
        InputError: If there is no such model, its files are damaged, or an argument is invalid.
    """
    if revision is not None:
        if model is None or not parse_id(model):
            raise InputError(
                f"revision is for models on the Hugging Face Hub, such as user/model, not {model}"
            )
        model = f"{model}@{revision}"
    path = find_model(model)  # once: a later look-up on the Hub may find a newer model
    return Embedder(
        partial(read_pretrained, path, options=options, vocab=vocab),
        device=device,
        precision=precision,
        tokenizer=tokenizer,
        language=language,
    )


def get_embedder(
    model: "Embedder | Path | str | None", options: Mapping[str, Any], **defaults: Any
) -> "Embedder":
    """Return an `Embedder` as it is; load any other model.

    Args:
        model: What `load` takes, or an `Embedder`.
        options: The other arguments of `load`.
        defaults: Arguments of `load` that are used unless `options` has them.

    Raises:
        InputError: If there are options for an `Embedder`, or see `load`.
    """
    if isinstance(model, Path | str | None):
        return load(model, **{**defaults, **options})
    if names := [name for name, value in options.items() if value is not None]:
        raise InputError(f"an Embedder is loaded already; pass {', '.join(names)} to load")
    return model


class Embedder:
    """A frozen biLM that embeds strings or token lists and returns numpy arrays.

    Without `carry_state`, the vectors of a sentence do not depend on its batch or on earlier calls,
    up to rounding (int8: up to quantization error). Token vectors are cached across calls.
    Thread-safe.

    Args:
        bilm: The model, whose weights are copied; or a function that reads one.
        vocabulary: The words of a word-input BiLM; a function that reads a model reads them, too.
        provenance: Where the model comes from, saved with it.
        device: See `load`.
        precision: See `load`.
        tokenizer: See `load`.
        language: See `load`.
    """

    def __init__(
        self,
        bilm: BiLM | Callable[[], Pretrained],
        *,
        vocabulary: Vocabulary | None = None,
        provenance: dict[str, Any] | None = None,
        device: Device = "auto",
        precision: Precision = "fp32",
        tokenizer: TokenizerName | None = None,
        language: str | None = None,
    ) -> None:
        check("precision", precision, one_of(*get_args(Precision)))
        self.device = find_device(device)
        self.precision = precision
        self._source = bilm
        read = _copy(bilm, vocabulary) if isinstance(bilm, BiLM) else bilm()
        chosen = choose_tokenization(read.tokenization, tokenizer, language)
        self.tokenizer: TokenizerName = chosen.tokenizer
        self.language = chosen.language
        self.tokenization = read.tokenization or (chosen if tokenizer or language else None)
        """Saved with the model: that of the training text or, if unknown, the caller's choice."""
        self.config = read.bilm.config
        self.vocabulary = read.vocabulary
        self.provenance = provenance or read.provenance
        self.weights_hash = read.weights_hash
        self._encode_words = get_word_encoder(self.config, self.vocabulary)
        self._runner = self._new_runner(read.bilm)

    def _new_runner(self, bilm: BiLM) -> SentenceRunner:
        """Return a runner with the weights of `bilm`, which it takes over."""
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        engine = new_engine(bilm.to(self.device, dtype), int8=self.precision == "int8")
        return SentenceRunner(engine, self._encode_words)

    @property
    def bilm(self) -> BiLM:
        """The plain PyTorch model: the one passed in, or read from the files on first use.

        Embedding does not use it. After changing its weights, call `refresh`.
        """
        self._source = self._get_bilm()
        return self._source

    def _get_bilm(self) -> BiLM:
        """Return `bilm`, without keeping it in memory if it is read from the files."""
        source = self._source
        return source if isinstance(source, BiLM) else source().bilm.to(self.device)

    def refresh(self) -> None:
        """Take the current weights of `bilm`, or read its files again if it was never used."""
        source = self._source
        read = _copy(source, self.vocabulary) if isinstance(source, BiLM) else source()
        self.weights_hash = read.weights_hash
        self._runner = self._new_runner(read.bilm)

    def __repr__(self) -> str:
        return (
            f"Embedder({self.num_layers} layers of {self.dim} dimensions, device={self.device}, "
            f"precision={self.precision})"
        )

    @property
    def num_layers(self) -> int:
        """The number of layers of a word: the token layer, and one per LSTM layer."""
        return self.config.num_layers + 1

    @property
    def dim(self) -> int:
        """The width of a vector, both directions together."""
        return 2 * self.config.dim

    def embed(
        self,
        sentences: Iterable[str | Sentence],
        *,
        layers: Layers = "all",
        carry_state: bool = False,
        batch_words: int | None = None,
        dtype: Dtype = "float32",
    ) -> list[Float[np.ndarray, "..."]]:
        """Return the vectors of each sentence, in the order of the sentences.

        Args:
            sentences: A string is tokenized; a list of tokens is taken as it is.
            layers: `all` (J, W, D); `top`, `average`, `sum` or the index of a layer (W, D).
            carry_state: Start each sentence from the state after the one before it, as the
                released programs do. Slower: sentences are computed one by one.
            batch_words: Compute about this many words at once.
            dtype: dtype of the vectors; float16 halves what has to be copied from a GPU.
        """
        stream = self.stream(
            sentences,
            layers=layers,
            carry_state=carry_state,
            batch_words=batch_words,
            dtype=dtype,
        )
        # From a GPU, vectors are views of a block in pinned memory, which is scarce.
        return [v if v.flags.owndata else v.copy() for _, v in stream]

    def stream(
        self,
        sentences: Iterable[str | Sentence],
        *,
        layers: Layers = "all",
        carry_state: bool = False,
        batch_words: int | None = None,
        dtype: Dtype = "float32",
    ) -> Iterator[Embedded]:
        """Yield tokens and vectors sentence by sentence, in constant memory.

        The arguments are those of `embed`. From a GPU, the vectors of a batch are views of one
        block of memory: copy those that you keep.
        """
        check_sentences(sentences)
        runner, select, max_words = self._prepare(layers, batch_words, dtype)
        tokenized = self._tokenize(sentences)
        if carry_state:
            return runner.stream_with_state(tokenized, select)
        return runner.stream(tokenized, select, max_words=max_words)

    def stream_windows(
        self,
        sentences: Iterable[str | Sentence],
        *,
        layers: Layers = "all",
        dtype: Dtype = "float32",
        skip: int = 0,
    ) -> Iterator[tuple[int, int, Embedded]]:
        """Yield what `stream` does, so that a resumed run gives bit-identical vectors.

        Each result comes with the index of its sentence and that of the first sentence of its
        window. To resume after a sentence, pass the sentences from the start of its window on, and
        skip those that are done. On other hardware or with another number of threads, rounding may
        differ.
        """
        runner, select, max_words = self._prepare(layers, None, dtype)
        tokenized = self._tokenize(sentences)
        return runner.stream_windows(tokenized, select, max_words=max_words, skip=skip)

    def _prepare(
        self, layers: Layers, batch_words: int | None, dtype: Dtype
    ) -> tuple[SentenceRunner, Select, int]:
        """Check the arguments of a stream; return those of its runner."""
        check_layers(layers, self.num_layers)
        check("dtype", dtype, one_of(*get_args(Dtype)))
        check("batch_words", batch_words, at_least(1), optional=True)
        self._runner.engine.check_process()

        def select(every: Float[Tensor, "J N D"]) -> Tensor:
            return select_layers(every, layers).to(getattr(torch, dtype))

        return self._runner, select, batch_words or default_batch_words(self.config, self.device)

    def sentence_vectors(
        self,
        sentences: Iterable[str | Sentence],
        *,
        layers: Literal["top", "average"] | int = "average",
        pool: Literal["mean", "max"] = "mean",
    ) -> Float32[np.ndarray, "S D"]:
        """Return one vector per sentence: the mean or the maximum over its words."""
        check("pool", pool, one_of("mean", "max"))
        check_layer(layers, self.num_layers, "layers")
        reduce = np.mean if pool == "mean" else np.max
        vectors = np.zeros((0, self.dim), dtype=np.float32)
        rows = [
            reduce(words, axis=0) if len(words) else np.zeros_like(vectors, shape=self.dim)
            for _, words in self.stream(sentences, layers=layers)
        ]
        return np.stack(rows) if rows else vectors

    def word_vectors(self, words: Sequence[str]) -> Float32[np.ndarray, "N _"]:
        """Return the vectors x_k of words without context: half the width of layer 0."""
        if isinstance(words, str):
            raise TypeError(
                f"expected a list of words, got one string ({words[:40]!r}). Put it in a list: "
                "[word]."
            )
        self._runner.engine.check_process()
        with without_autograd(self.device):
            table, rows, _ = self._runner.words.look_up(check_sentence(words, 0))
            return table[to_device(rows, self.device)].float().cpu().numpy()

    def encode(self, sentences: Iterable[str | Sentence]) -> TokenBatch:
        """Return the padded batch of ids that `BiLM` and `Elmo` take."""
        check_sentences(sentences)
        return batch_sentences(self._tokenize(sentences), self._encode_words)

    def save(
        self,
        path: Path | str,
        *,
        dtype: WeightsDtype = "float32",
        overwrite: bool = False,
    ) -> None:
        """Write the weights of `bilm` to a directory that `elmore.load` reads.

        Args:
            path: The directory.
            dtype: Type of the weights in the file. `int8` has one scale per row of a matrix; the
                weights are float32 again once they are loaded.
            overwrite: Replace an existing directory if it has the files of a model and no others.
        """
        check("dtype", dtype, one_of(*get_args(WeightsDtype)))
        with new_directory(Path(path), overwrite=overwrite) as folder:
            write_directory(
                self._get_bilm(),
                folder,
                vocabulary=self.vocabulary,
                provenance=self.provenance,
                tokenization=self.tokenization,
                dtype=dtype,
            )

    def free(self) -> None:
        """Free cached token vectors and captured CUDA graphs; the next call makes them again."""
        self._runner.words.clear()
        self._runner.engine.free()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the engine: packed weights and CUDA graphs cannot be pickled."""
        return {**self.__dict__, "_source": self._get_bilm(), "_runner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.refresh()

    def _tokenize(self, sentences: Iterable[str | Sentence]) -> Iterator[list[str]]:
        of_model = self.tokenization.language if self.tokenization else None
        return warn_about_script(self._split(sentences), of_model)

    def _split(self, sentences: Iterable[str | Sentence]) -> Iterator[list[str]]:
        tokenize = None
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                tokenize = tokenize or get_tokenizer(self.tokenizer, self.language)
                yield tokenize(sentence)
            else:
                yield [*check_sentence(sentence, i, or_string=True)]


def _copy(bilm: BiLM, vocabulary: Vocabulary | None) -> Pretrained:
    return Pretrained(copy.deepcopy(bilm), vocabulary, {}, None, hash_weights(bilm.state_dict()))


def get_word_encoder(config: BiLMConfig, vocabulary: Vocabulary | None) -> EncodeWords:
    """Return the function that maps words to ids; a word-input biLM needs its vocabulary."""
    if config.vocab_size is None:
        return partial(encode_words, width=config.max_characters)
    if vocabulary is None:
        raise InputError("this biLM reads words: pass its vocabulary")
    return vocabulary.encode_words


def default_batch_words(config: BiLMConfig, device: torch.device) -> int:
    """Return how many words are embedded together: fewer if vectors are wide."""
    bytes_per_word = 4 * (config.num_layers + 1) * 2 * config.dim
    kind = device.type
    return max(1, min(_BATCH_WORDS[kind], _BATCH_BYTES[kind] // bytes_per_word))
