"""AllenNLP's `Elmo`, `ScalarMix`, `ElmoTokenEmbedder`, `ElmoEmbedder`, with the same results.

    from allennlp.modules.elmo import Elmo, batch_to_ids        # before
    from elmore.compat.allennlp import Elmo, batch_to_ids       # after

As in AllenNLP, a model keeps the LSTM state of each row of a batch, and the next batch starts from
it: repeating a call gives a different result. Pass `stateful=False` to disable this.

B sentences, T tokens including the boundary tokens, W words, C characters, J layers, D dim.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, TypedDict

import h5py
import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from elmore.atomic import atomic_file
from elmore.bilm.model import BiLM
from elmore.checkpoint.hdf5 import read_hdf5
from elmore.compat.stateful import StatefulBiLM
from elmore.device import find_device
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.layers import select_layers
from elmore.inference.padded import PaddedRunner
from elmore.mix import BiLMRunner, normalize_batch
from elmore.schema import check, one_of
from elmore.text.characters import encode_sentences, encode_words
from elmore.text.sentences import BOS_WORD, EOS_WORD, check_sentence


class ElmoOutput(TypedDict):
    """Output of `Elmo`."""

    elmo_representations: list[Float[Tensor, "... W D"]]
    mask: Bool[Tensor, "... W"]


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Int[Tensor, "B W C"]:
    """Return character ids of tokenized sentences, zero-padded and without boundary tokens."""
    rows = [encode_words(check_sentence(words, i)) for i, words in enumerate(batch)]
    if not rows:
        return encode_words([])[None][:0]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def add_boundaries(
    x: Shaped[Tensor, "B W K"],
    mask: Bool[Tensor, "B W"],
    boundaries: Shaped[Tensor, "2 K"],
) -> tuple[Shaped[Tensor, "B T K"], Bool[Tensor, "B T"]]:
    """Add the boundary tokens to each sentence: [a b _] -> [<S> a b </S> _]."""
    lengths = mask.sum(dim=1)
    framed = nn.functional.pad(x, (0, 0, 1, 1))
    framed[:, 0] = boundaries[0]
    framed[torch.arange(len(x), device=x.device), lengths + 1] = boundaries[1]
    return framed, torch.arange(framed.shape[1], device=x.device) < lengths[:, None] + 2


class ScalarMix(nn.Module):
    """`allennlp.modules.scalar_mix.ScalarMix`: `elmore.ScalarMix` with AllenNLP's parameters.

    Args:
        mixture_size: Number of tensors to mix.
        do_layer_norm: Normalize each tensor over the batch, as AllenNLP does.
        initial_scalar_parameters: Initial weights, before the softmax; zeros by default.
        trainable: Learn the weights and gamma.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        initial = [0.0] * mixture_size
        if initial_scalar_parameters is not None:
            initial = [*map(float, initial_scalar_parameters)]
        if len(initial) != mixture_size:
            raise InputError(f"expected {mixture_size} scalar parameters, got {initial}")
        self.do_layer_norm = do_layer_norm
        parameters = (nn.Parameter(torch.tensor([w]), requires_grad=trainable) for w in initial)
        self.scalar_parameters = nn.ParameterList(parameters)
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(
        self, tensors: Sequence[Float[Tensor, "... D"]], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "... D"]:
        """Mix tensors of the same shape; layer normalization takes statistics over `mask` only."""
        if len(tensors) != len(self.scalar_parameters):
            raise InputError(
                f"expected {len(self.scalar_parameters)} tensors to mix, got {len(tensors)}"
            )
        if self.do_layer_norm:
            tensors = normalize_batch(torch.stack(list(tensors), dim=1), mask).unbind(dim=1)
        weights = torch.cat([*self.scalar_parameters]).softmax(dim=0)
        return self.gamma * sum(w * x for w, x in zip(weights, tensors, strict=True))


class Elmo(BiLMRunner):
    """`allennlp.modules.elmo.Elmo`: scalar mixes of the layers of a released biLM.

    Args:
        options_file: options.json.
        weight_file: HDF5 weights.
        num_output_representations: Number of scalar mixes.
        requires_grad: Fine-tune the biLM.
        do_layer_norm: Normalize each layer over the batch, as AllenNLP does.
        dropout: Dropout rate of each representation.
        vocab_to_cache: Words that `word_inputs` refers to by index; index 0 is padding. Not needed
            for speed: the token vectors of all words are cached.
        keep_sentence_boundaries: Also return the vectors of `<S>` and `</S>`.
        scalar_mix_parameters: Fixed layer weights, before the softmax.
        module: A biLM to use instead of the files.
        stateful: Start each batch from the state of the previous one, as AllenNLP does.
    """

    def __init__(
        self,
        options_file: Path | str | None = None,
        weight_file: Path | str | None = None,
        num_output_representations: int = 1,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: BiLM | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        bilm = module if module is not None else _read(options_file, weight_file)
        super().__init__(bilm, frozen=not requires_grad)
        self._num_mixes = num_output_representations
        for k in range(num_output_representations):
            mix = ScalarMix(
                bilm.config.num_layers + 1,
                do_layer_norm,
                scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{k}", mix)
        self._dropout = nn.Dropout(dropout)
        self._stateful_bilm = StatefulBiLM(self.run_bilm, stateful=stateful)
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._boundaries: Tensor
        self._vocabulary: Tensor
        self.register_buffer("_boundaries", encode_words([BOS_WORD, EOS_WORD]), persistent=False)
        vocabulary = encode_words(vocab_to_cache or [])
        self.register_buffer("_vocabulary", vocabulary, persistent=False)

    def train(self, mode: bool = True) -> "Elmo":
        """Set training mode; as in AllenNLP, the biLM never applies dropout."""
        super().train(mode)
        self.bilm.eval()
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Elmo":
        super()._apply(fn, recurse)
        self._stateful_bilm.convert_state(fn)
        return self

    def get_output_dim(self) -> int:
        """Return the dimension of a representation."""
        return 2 * self.bilm.config.dim

    def reset_states(self) -> None:
        """Reset the state to zero."""
        self._stateful_bilm.reset_states()

    def forward(
        self, inputs: Int[Tensor, "... W C"], word_inputs: Int[Tensor, "... W"] | None = None
    ) -> ElmoOutput:
        """Embed the character ids of `batch_to_ids`; further leading dimensions are allowed.

        `word_inputs` is used instead if all of its indices are within `vocab_to_cache`.
        """
        _check_ids(inputs, self._boundaries)
        shape = inputs.shape[:-2]
        ids = inputs.flatten(0, -3)  # (B, W, C)
        word_mask = (ids > 0).any(dim=-1)
        if word_inputs is not None and word_inputs.numel():
            indices = word_inputs.flatten(0, -2)  # (B, W)
            if int(indices.max()) < len(self._vocabulary):
                ids, word_mask = self._vocabulary[indices], indices > 0
        ids, mask = add_boundaries(ids, word_mask, self._boundaries)
        layers = self._stateful_bilm(ids, mask)
        inner = slice(None) if self._keep_sentence_boundaries else slice(1, -1)
        output_mask = mask if self._keep_sentence_boundaries else mask[:, 2:]
        mixes = (getattr(self, f"scalar_mix_{k}") for k in range(self._num_mixes))
        outputs = (self._dropout(mix(layers.unbind(dim=1), mask)[:, inner]) for mix in mixes)
        return {
            "elmo_representations": [
                (output * output_mask[..., None]).unflatten(0, shape) for output in outputs
            ],
            "mask": output_mask.unflatten(0, shape),
        }


def _check_ids(inputs: object, boundaries: Int[Tensor, "2 C"]) -> None:
    """Raise a `TypeError` unless the inputs are the character ids of a batch."""
    characters = boundaries.shape[-1]
    if not isinstance(inputs, Tensor):
        got = type(inputs).__name__
    elif inputs.is_floating_point() or inputs.ndim < 3 or inputs.shape[-1] != characters:
        got = f"a tensor of {inputs.dtype} with shape {tuple(inputs.shape)}"
    else:
        return
    raise TypeError(
        f"expected character ids, integers of shape (sentences, words, {characters}), got {got}. "
        "Encode tokenized sentences first: elmo(batch_to_ids(sentences))."
    )


class ElmoTokenEmbedder(nn.Module):
    """`allennlp.modules.token_embedders.ElmoTokenEmbedder`: one mix, optionally projected.

    Args:
        options_file: options.json.
        weight_file: HDF5 weights.
        do_layer_norm: See `Elmo`.
        dropout: Dropout rate of the representation.
        requires_grad: Fine-tune the biLM.
        projection_dim: Project the representation to this dimension.
        vocab_to_cache: See `Elmo`.
        scalar_mix_parameters: See `Elmo`.
        stateful: See `Elmo`.
    """

    def __init__(
        self,
        options_file: Path | str | None = None,
        weight_file: Path | str | None = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad,
            do_layer_norm,
            dropout,
            vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
        )
        width = self._elmo.get_output_dim()
        self._projection = nn.Linear(width, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or width

    def get_output_dim(self) -> int:
        """Return the dimension of the representation."""
        return self.output_dim

    def forward(
        self, elmo_tokens: Int[Tensor, "... W C"], word_inputs: Int[Tensor, "... W"] | None = None
    ) -> Float[Tensor, "... W D"]:
        """Embed the character ids of `batch_to_ids`."""
        representation = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return representation if self._projection is None else self._projection(representation)


class ElmoEmbedder:
    """`allennlp.commands.elmo.ElmoEmbedder` (version 0.9): sentences to NumPy arrays.

    Args:
        options_file: options.json.
        weight_file: HDF5 weights.
        cuda_device: Index of a GPU; -1 for the CPU.
        stateful: Start each batch from the state of the previous one, as AllenNLP does.
    """

    def __init__(
        self,
        options_file: Path | str | None = None,
        weight_file: Path | str | None = None,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
    ) -> None:
        device = find_device("cpu" if cuda_device < 0 else f"cuda:{cuda_device}")
        bilm = _read(options_file, weight_file).to(device)
        self._max_characters = bilm.config.max_characters
        self.elmo_bilm = StatefulBiLM(PaddedRunner(new_engine(bilm)), stateful=stateful)

    def batch_to_embeddings(
        self, batch: Sequence[Sequence[str]]
    ) -> tuple[Float[Tensor, "B J W D"], Bool[Tensor, "B W"]]:
        """Return all layers of a batch and the mask of its words."""
        tokens = encode_sentences(batch, self._max_characters)
        layers = self.elmo_bilm(*tokens)
        words = tokens.word_mask.to(layers.device)
        return layers[:, :, 1:-1] * words[:, None, :, None], words

    def embed_sentence(self, sentence: Sequence[str]) -> Float[np.ndarray, "J W D"]:
        """Return all layers of one sentence."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Float[np.ndarray, "J W D"]]:
        """Return all layers of each sentence of one batch."""
        layers, _ = self.batch_to_embeddings(batch)
        rows = layers.cpu().numpy()
        return [row[:, : len(words)].copy() for row, words in zip(rows, batch, strict=True)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = 64
    ) -> Iterator[Float[np.ndarray, "J W D"]]:
        """Yield all layers of each sentence, computed in batches."""
        rest = iter(sentences)
        while batch := list(islice(rest, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: Path | str,
        output_format: Literal["all", "top", "average"] = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed tokenized sentences, one per line, and write the vectors to an HDF5 file.

        Args:
            input_file: An open text file, or any iterable of lines.
            output_file_path: The HDF5 file.
            output_format: All layers, the top layer, or the average of all layers.
            batch_size: Sentences per batch.
            forget_sentences: Do not write the dataset `sentence_to_index`.
            use_sentence_keys: Use sentences as keys instead of line numbers.

        Raises:
            InputError: If a line is blank, or a sentence cannot be a key.
        """
        check("output_format", output_format, one_of("all", "top", "average"))
        lines = [line.strip() for line in input_file]
        if "" in lines:
            raise InputError(f"line {lines.index('') + 1} is blank; expected one sentence per line")
        keys = lines if use_sentence_keys else list(map(str, range(len(lines))))
        if len(set(keys)) < len(keys) or any("/" in key for key in keys):
            raise InputError(
                "use_sentence_keys requires distinct sentences without '/', which HDF5 reserves; "
                "use line numbers as keys instead"
            )
        vectors = self.embed_sentences((line.split() for line in lines), batch_size)
        with atomic_file(Path(output_file_path)) as path, h5py.File(path, "w") as file:
            for key, layers in zip(keys, vectors, strict=True):
                file[key] = select_layers(torch.from_numpy(layers), output_format).numpy()
            if not forget_sentences and not use_sentence_keys:
                index = dict(zip(lines, keys, strict=True))
                dtype = h5py.string_dtype("utf-8")
                file.create_dataset("sentence_to_index", data=[json.dumps(index)], dtype=dtype)


def _read(options: Path | str | None, weights: Path | str | None) -> BiLM:
    if options is None or weights is None:
        raise InputError(
            "expected options_file and weight_file. AllenNLP downloads the original ELMo if they "
            "are missing; elmore downloads nothing, so download the two files and pass their paths"
        )
    for file in (options, weights):
        if str(file).startswith(("http://", "https://", "s3://")):
            raise InputError(f"{file} is a URL; download the file first and pass its path")
    return read_hdf5(Path(weights), Path(options))
