"""(4) Sentences in, arrays out: what most people use.

B sentences, J layers, T tokens, W words, D dim.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from elmore.atomic import refuse_existing
from elmore.batches import Twin, in_groups, in_sequence, in_streams
from elmore.bilm.fingerprint import fingerprint
from elmore.bilm.model import BiLM
from elmore.bilm.packed import PackedBiLM, worth_packing
from elmore.bilm.products import Arithmetic, can_pack
from elmore.bilm.streams import StreamedBiLM
from elmore.bilm.word_table import WordTable
from elmore.checkpoint.assign import build
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.pretrained import read_pretrained
from elmore.errors import InputError
from elmore.mix import max_pool, mean_pool
from elmore.text.characters import encode_words
from elmore.text.sentences import (
    EncodeWords,
    Sentence,
    TokenBatch,
    batch_sentences,
    check_sentence,
)
from elmore.text.tokenize import TokenizerName, get_tokenizer
from elmore.text.vocabulary import Vocabulary
from elmore.transfer import to_device

Layers = Literal["all", "top", "average"] | int
Device = str
"""`auto`, `cpu`, `cuda` or, for one of several GPUs, `cuda:1`."""
Precision = Literal["fp32", "bf16", "int8"]

Dtype = Literal["float32", "float16"]

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}
_BATCH_WORDS = {"cpu": 4096, "cuda": 65_536}
_BATCH_BYTES = {"cpu": 3 * 2**23, "cuda": 2**32}  # of vectors in float32


class Embedded(NamedTuple):
    """A sentence and its vectors: (J, W, D) for all layers, else (W, D)."""

    tokens: list[str]
    vectors: Float[np.ndarray, "..."]


def load(
    model: Path | str | None = None,
    *,
    options: Path | str | None = None,
    vocab: Path | str | None = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    tokenizer: TokenizerName = "moses",
    language: str = "en",
) -> "Embedder":
    """Load a model to embed sentences with.

    Args:
        model: A folder written by elmore, released HDF5 weights, or an archive of either; the
            English model that ships with elmore if not given.
        options: The options.json of HDF5 weights; looked for beside them if not given.
        vocab: The vocabulary of a model that reads words instead of characters.
        device: `auto` takes a GPU if there is one.
        precision: `fp32` is exact; `bf16` halves the memory and keeps about three digits; `int8`,
            for CPUs, is faster still and keeps about two.
        tokenizer: For sentences that come as strings.
        language: ISO 639-1 code, for the rules of the tokenizer.
    """
    bilm, vocabulary, provenance, _ = read_pretrained(model, options=options, vocab=vocab)
    if precision == "bf16":
        bilm.to(torch.bfloat16)  # matrix by matrix: the embedder would make a copy
    embedder = Embedder(
        bilm,
        vocabulary=vocabulary,
        provenance=provenance,
        device=device,
        precision=precision,
        tokenizer=tokenizer,
        language=language,
    )
    del bilm  # so that the embedder's is the only one, and packing frees it
    embedder._own_weights()
    return embedder


class Embedder:
    """A biLM that takes sentences as people have them and returns numpy arrays.

    A sentence has one set of vectors, to rounding, whatever its batch and whatever came before it.
    Token vectors are remembered from one call to the next, in a table with bounds.
    """

    def __init__(
        self,
        bilm: BiLM,
        *,
        vocabulary: Vocabulary | None = None,
        provenance: dict[str, Any] | None = None,
        device: Device = "auto",
        precision: Precision = "fp32",
        tokenizer: TokenizerName = "moses",
        language: str = "en",
    ) -> None:
        if precision not in _DTYPES:
            raise InputError(f"precision must be {', '.join(_DTYPES)}, got {precision!r}")
        self.device = find_device(device)
        if precision == "int8" and not (self.device.type == "cpu" and can_pack("int8")):
            raise InputError(f"int8 needs an x86 CPU, not {self.device}; try bf16")
        # A copy where the weights change, so that the caller's model stays what it is.
        changes = precision == "bf16" and next(bilm.parameters()).dtype != torch.bfloat16
        self._bilm: BiLM | None = copy.deepcopy(bilm) if changes else bilm
        self._bilm.to(self.device, _DTYPES[precision])
        self.config = bilm.config
        self.vocabulary = vocabulary
        self.provenance = provenance or {}
        self.precision = precision
        self._get_tokenizer = partial(get_tokenizer, tokenizer, language)
        self._twin: Twin | None = None
        self._twin_of: list[tuple[int, int, int]] = []
        self._tables: list[WordTable] = []  # one or none
        self._owns_weights = False  # or somebody else may change them
        self._encode_words: EncodeWords
        if bilm.config.vocab_size is None:
            self._encode_words = partial(encode_words, width=bilm.config.max_characters)
        elif vocabulary is not None:
            self._encode_words = vocabulary.encode_words
        else:
            raise InputError("this biLM reads words: pass its vocabulary")

    @property
    def bilm(self) -> BiLM:
        """The model itself. One that `load` has packed is unpacked, and from now on kept."""
        self._owns_weights = False
        if self._bilm is None:
            bilm = self._plain()
            self._bilm, self._twin_of = bilm, fingerprint(bilm)
        return self._bilm

    @property
    def num_layers(self) -> int:
        """The layers of a word: the token layer, and one for each LSTM layer."""
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
            layers: `all` (J, W, D); `top`, `average` or the number of a layer (W, D).
            carry_state: Read the sentences as one text, one after the other, each from the state
                that the one before left behind, as the released programs do. Slower.
            batch_words: Tokens that are computed at once, padding included.
            dtype: Type of the numbers; float16 is half of what has to leave a GPU.
        """
        stream = self.stream(
            sentences,
            layers=layers,
            carry_state=carry_state,
            batch_words=batch_words,
            dtype=dtype,
        )
        return [vectors for _, vectors in stream]

    def stream(
        self,
        sentences: Iterable[str | Sentence],
        *,
        layers: Layers = "all",
        carry_state: bool = False,
        batch_words: int | None = None,
        dtype: Dtype = "float32",
    ) -> Iterator[Embedded]:
        """Yield tokens and vectors sentence by sentence, in memory that does not grow.

        The arguments are those of `embed`. From a GPU, the vectors of one batch come as one block
        of memory: copy what is to be kept of them for long.
        """
        self._check_layers(layers)
        bilm = self._fast()
        tokenized = self._tokenize(sentences)
        max_words = batch_words or self._batch_words()

        def pick(output: Float[Tensor, "B J T D"]) -> Tensor:
            return _choose(output, layers).to(getattr(torch, dtype))

        with self._known_words(bilm) as words:
            if carry_state:
                batches = in_sequence(tokenized, bilm, words, pick)
            elif isinstance(bilm, StreamedBiLM):
                batches = in_streams(tokenized, bilm, words, pick, max_words)
            else:
                batches = in_groups(tokenized, bilm, words, pick, max_words)
            for some, vectors in batches:
                yield from map(Embedded, some, vectors)

    def sentence_vectors(
        self,
        sentences: Iterable[str | Sentence],
        *,
        layers: Literal["top", "average"] | int = "average",
        pool: Literal["mean", "max"] = "mean",
    ) -> Float32[np.ndarray, "N D"]:
        """Return one vector a sentence: the mean or the maximum over its words."""
        if pool not in ("mean", "max"):
            raise InputError(f"pool must be mean or max, got {pool!r}")
        reduce = mean_pool if pool == "mean" else max_pool
        rows = []
        for _, vectors in self.stream(sentences, layers=layers):
            words = torch.from_numpy(vectors)[None]  # (1, W, D)
            rows.append(reduce(words, torch.ones(words.shape[:2], dtype=torch.bool))[0].numpy())
        return np.stack(rows) if rows else np.zeros((0, self.dim), dtype=np.float32)

    def word_vectors(self, words: Sequence[str]) -> Float32[np.ndarray, "N d"]:
        """Return the vectors of words without context, x_k: half the width of layer 0."""
        with self._known_words(self._fast()) as table:
            rows = table(check_sentence(words, 0))
            return table.vectors[to_device(rows, self.device)].float().cpu().numpy()

    def encode(self, sentences: Iterable[str | Sentence]) -> TokenBatch:
        """Return the batch that `BiLM` and `Elmo` take."""
        return batch_sentences(self._tokenize(sentences), self._encode_words)

    def save(
        self,
        path: Path | str,
        *,
        dtype: Literal["float32", "float16"] = "float32",
        overwrite: bool = False,
    ) -> None:
        """Write the biLM to a folder that `elmore.load` reads."""
        refuse_existing(Path(path), overwrite=overwrite)
        write_directory(
            self._plain(),
            Path(path),
            vocabulary=self.vocabulary,
            provenance=self.provenance,
            dtype=dtype,
        )

    def free(self) -> None:
        """Free what was made to embed fast; it is made again when it is needed."""
        self._tables = []
        self._twin_of = []  # so that what a stream still has does not come back
        if self._bilm is not None:
            self._twin = None

    def __copy__(self) -> "Embedder":
        """Return a copy with weights of its own: a change of one must not be one of the other."""
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of: packed weights can't be copied."""
        return self.__dict__ | {"_bilm": self._plain(), "_twin": None, "_tables": []}

    def _batch_words(self) -> int:
        """Return how many words are embedded together: fewer where vectors are long."""
        of_a_word = 4 * self.num_layers * self.dim
        kind = self.device.type
        return max(1, min(_BATCH_WORDS[kind], _BATCH_BYTES[kind] // of_a_word))

    def _plain(self) -> BiLM:
        """Return the biLM, unpacked if need be."""
        if self._bilm is not None:
            return self._bilm
        weights = cast("PackedBiLM", self._twin).unpack()
        return build(self.config, weights, "packed weights").to(_DTYPES[self.precision])

    def _own_weights(self) -> None:
        """Be the only one with these weights: keep them packed, if nothing is lost in that."""
        if self._bilm is not None and self.precision != "int8" and worth_packing(self._bilm):
            weights = self._bilm.state_dict()
            self._bilm = None
            self._twin = PackedBiLM(self.config, weights)
        self._owns_weights = True

    def _fast(self) -> Twin:
        """Return the biLM that computes: where it is of use, a twin of ours.

        The twin is made when it is first needed, and again when somebody has changed our weights.
        """
        if self._bilm is None or (self._owns_weights and self._twin is not None):
            return cast("Twin", self._twin)
        now = fingerprint(self._bilm)
        if self._twin is None or self._twin_of != now:
            self._twin, self._twin_of, self._tables = self._make_twin(self._bilm), now, []
        return self._twin

    def _make_twin(self, bilm: BiLM) -> Twin:
        if self.device.type == "cuda":
            return StreamedBiLM(bilm)
        if not worth_packing(bilm) and self.precision != "int8":
            return bilm
        arithmetic: Arithmetic = "int8" if self.precision == "int8" else "float"
        return PackedBiLM(bilm.config, bilm.state_dict(), arithmetic)

    @contextmanager
    def _known_words(self, bilm: Twin) -> Iterator[WordTable]:
        """Lend the table of token vectors, which has one user at a time, or a new one.

        It comes back when all has gone well, and if the weights are still the same.
        """
        twin_of = self._twin_of
        try:
            table = self._tables.pop()
        except IndexError:
            table = None
        if table is None or table.bilm is not bilm:
            table = WordTable(bilm, self._encode_words, self.device)
        yield table
        if self._twin_of is twin_of and not table.has_grown:
            self._tables[:] = [table]

    def _tokenize(self, sentences: Iterable[str | Sentence]) -> Iterator[list[str]]:
        if isinstance(sentences, str):
            raise TypeError(
                f"expected a list of sentences, got one string ({sentences[:40]!r}). "
                "Put it in a list: elmo.embed([sentence])."
            )
        split = None
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                split = split or self._get_tokenizer()  # only for those who need one
                yield split(sentence)
            else:
                yield [*check_sentence(sentence, i)]

    def _check_layers(self, layers: Layers) -> None:
        names = ("all", "top", "average", *range(self.num_layers))
        if layers not in names or isinstance(layers, bool):
            raise InputError(
                f"layers must be all, top, average or a number from 0 to {self.num_layers - 1}, "
                f"got {layers!r}"
            )


def _choose(layers: Tensor, which: Layers) -> Tensor:
    if which == "all":
        return layers
    if which == "average":
        return layers.mean(dim=1)
    return layers[:, -1 if which == "top" else which]


def find_device(device: Device) -> torch.device:
    """Return the device that is meant, or say what there is."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise InputError(f"device must be auto, cpu, cuda or cuda:NUMBER, got {device!r}")
    found = torch.device(device)
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"PyTorch finds {count} GPUs, so there is no {device}; try cpu")
    return found
