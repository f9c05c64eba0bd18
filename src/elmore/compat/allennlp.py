"""AllenNLP's `batch_to_ids`, `Elmo`, `ElmoTokenEmbedder` and `ElmoEmbedder`, with the same results.

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
from typing import Any, Literal, NamedTuple, TypedDict, cast

import h5py
import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from elmore.atomic import atomic_file
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMOutput, BiLMState
from elmore.checkpoint.hdf5 import read_hdf5
from elmore.embedder import find_device
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.padded import PaddedRunner
from elmore.mix import Elmo as Mixes
from elmore.mix import ScalarMix
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


class StatefulBiLM:
    """Runs a biLM and keeps the LSTM state of each row for the next batch.

    Args:
        run: Maps ids, mask and state to layers and the new state.
        stateful: If False, every batch starts from the zero state.
    """

    def __init__(self, run: Callable[..., BiLMOutput], *, stateful: bool = True) -> None:
        self._run = run
        self.stateful = stateful
        self._state: BiLMState | None = None

    def reset_states(self) -> None:
        """Reset the state to zero."""
        self._state = None

    def __call__(
        self, ids: Int[Tensor, "B T C"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B J T D"]:
        """Return all layers, and keep the new state."""
        before = _fit_rows(self._state, len(ids)) if self.stateful and self._state else None
        layers, after = self._run(ids, mask, before)
        if self.stateful:
            self._state = _merge(self._state, after)
        return layers


def _fit_rows(state: BiLMState, rows: int) -> BiLMState:
    """Truncate a state to a number of rows, or pad it with zeros."""

    def fit(x: Tensor) -> Tensor:
        return nn.functional.pad(x[:rows], (0, 0, 0, max(0, rows - len(x))))

    return [LSTMState(fit(layer.output), fit(layer.cell)) for layer in state]


def _merge(before: BiLMState | None, after: BiLMState) -> BiLMState:
    """Update the rows of this batch; the other rows keep their state."""
    after = [LSTMState(layer.output.detach(), layer.cell.detach()) for layer in after]
    if before is None:
        return after
    return [
        LSTMState(*(torch.cat([new, old[len(new) :]]) for new, old in zip(a, b, strict=True)))
        for a, b in zip(after, before, strict=True)
    ]


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


class AllenNLPMix(NamedTuple):
    """The parameters of a scalar mix, under AllenNLP's names."""

    gamma: Float[Tensor, ""]
    scalar_parameters: tuple[Float[Tensor, " 1"], ...]


class Elmo(nn.Module):
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
        super().__init__()
        bilm = module if module is not None else _read(options_file, weight_file)
        self.elmo = Mixes(
            bilm,
            num_mixes=num_output_representations,
            weights="learned" if scalar_mix_parameters is None else scalar_mix_parameters,
            layer_norm="allennlp" if do_layer_norm else False,
            dropout=float(dropout),
            frozen=not requires_grad,
            keep_boundaries=keep_sentence_boundaries,
        )
        self._stateful_bilm = StatefulBiLM(self.elmo.run_bilm, stateful=stateful)
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._boundaries: Tensor
        self._vocabulary: Tensor
        self.register_buffer("_boundaries", encode_words([BOS_WORD, EOS_WORD]), persistent=False)
        vocabulary = encode_words(vocab_to_cache or [])
        self.register_buffer("_vocabulary", vocabulary, persistent=False)
        self.register_load_state_dict_pre_hook(_translate_state)  # type: ignore[no-untyped-call]
        self.train(self.training)

    def train(self, mode: bool = True) -> "Elmo":
        """Set training mode; as in AllenNLP, the biLM never applies dropout."""
        super().train(mode)
        self.elmo.bilm.eval()
        return self

    def __getattr__(self, name: str) -> Any:
        """Return `scalar_mix_0`, ...: views of the learned parameters; change them in place."""
        number = name.removeprefix("scalar_mix_")
        if number == name or not number.isdecimal() or int(number) >= len(self.elmo.mixes):
            return super().__getattr__(name)
        mix = cast("ScalarMix", self.elmo.mixes[int(number)])
        return AllenNLPMix(mix.gamma, mix.w.split(1))

    def get_output_dim(self) -> int:
        """Return the dimension of a representation."""
        return self.elmo.dim

    def reset_states(self) -> None:
        """Reset the state to zero."""
        self._stateful_bilm.reset_states()

    def forward(
        self, inputs: Int[Tensor, "... W C"], word_inputs: Int[Tensor, "... W"] | None = None
    ) -> ElmoOutput:
        """Embed the character ids of `batch_to_ids`; further leading dimensions are allowed.

        `word_inputs` is used instead if all of its indices are within `vocab_to_cache`.
        """
        shape = inputs.shape[:-2]
        ids = inputs.flatten(0, -3)  # (B, W, C)
        word_mask = (ids > 0).any(dim=-1)
        if word_inputs is not None and word_inputs.numel():
            indices = word_inputs.flatten(0, -2)  # (B, W)
            if int(indices.max()) < len(self._vocabulary):
                ids, word_mask = self._vocabulary[indices], indices > 0
        ids, mask = add_boundaries(ids, word_mask, self._boundaries)
        layers = self._stateful_bilm(ids, mask)
        outputs = self.elmo.mix(layers, mask)
        output_mask = mask if self._keep_sentence_boundaries else mask[:, 2:]
        return {
            "elmo_representations": [output.unflatten(0, shape) for output in outputs],
            "mask": output_mask.unflatten(0, shape),
        }


def _translate_state(_: nn.Module, state: dict[str, Tensor], prefix: str, *__: object) -> None:
    """Rename the scalar mixes in an AllenNLP state dict; the biLM comes from the weight file."""
    mixes: dict[str, dict[int, Tensor]] = {}
    for name in [name for name in state if name.startswith(prefix)]:
        match name.removeprefix(prefix).split("."):
            case [mix, "gamma"] if mix.startswith("scalar_mix_"):
                gamma = state.pop(name)
                state[f"{prefix}elmo.mixes.{mix[11:]}.gamma"] = gamma.reshape(())
            case [mix, "scalar_parameters", layer] if mix.startswith("scalar_mix_"):
                mixes.setdefault(mix[11:], {})[int(layer)] = state.pop(name)
    for mix, layers in mixes.items():
        w = torch.cat([layers[j].reshape(1) for j in sorted(layers)])
        state[f"{prefix}elmo.mixes.{mix}.w"] = w


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
                file[key] = _select(layers, output_format)
            if not forget_sentences and not use_sentence_keys:
                index = dict(zip(lines, keys, strict=True))
                dtype = h5py.string_dtype("utf-8")
                file.create_dataset("sentence_to_index", data=[json.dumps(index)], dtype=dtype)


def _select(layers: np.ndarray, output_format: Literal["all", "top", "average"]) -> np.ndarray:
    match output_format:
        case "all":
            return layers
        case "top":
            return layers[-1]
        case "average":
            return layers.mean(axis=0)
    raise InputError(f"output_format must be all, top or average, got {output_format!r}")


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
