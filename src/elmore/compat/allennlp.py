"""AllenNLP's ELMo: `batch_to_ids`, `Elmo` and `ElmoEmbedder`, with its results.

    from allennlp.modules.elmo import Elmo, batch_to_ids        # before
    from elmore.compat.allennlp import Elmo, batch_to_ids       # after

As in AllenNLP, a model keeps the state of each row of a batch, and the next batch continues from
it: the same call twice gives two answers. `stateful=False` turns this off.

B sentences, T tokens, W words, C characters, J layers, D dim.
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
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMOutput, BiLMState
from elmore.checkpoint.hdf5 import read_hdf5
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.padded import PaddedRunner
from elmore.mix import Elmo as Mixes
from elmore.text.characters import encode_sentences, encode_words
from elmore.text.sentences import BOS_WORD, EOS_WORD, check_sentence


class ElmoOutput(TypedDict):
    """What `Elmo` returns."""

    elmo_representations: list[Float[Tensor, "... W D"]]
    mask: Bool[Tensor, "... W"]


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Int[Tensor, "B W C"]:
    """Return the character ids of tokenized sentences, padded with zeros, without boundaries."""
    rows = [encode_words(check_sentence(words, i)) for i, words in enumerate(batch)]
    if not rows:
        return encode_words([])[None][:0]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


class StatefulBiLM:
    """Keeps, for each row of a batch, the state after its last sentence.

    Args:
        run: The biLM, from ids, mask and state to layers and state.
        stateful: Carry the state at all.
    """

    def __init__(self, run: Callable[..., BiLMOutput], *, stateful: bool = True) -> None:
        self._run = run
        self.stateful = stateful
        self._state: BiLMState | None = None

    def reset_states(self) -> None:
        """Drop the state: the next batch starts a new text."""
        self._state = None

    def __call__(
        self, ids: Int[Tensor, "B T C"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B J T D"]:
        """Run the biLM, each row from the state kept for it."""
        before = _fit_rows(self._state, len(ids)) if self.stateful and self._state else None
        layers, after = self._run(ids, mask, before)
        if self.stateful:
            self._state = _merge(self._state, after)
        return layers


def _fit_rows(state: BiLMState, rows: int) -> BiLMState:
    """Return the state of the first rows; rows that are new start from zero."""

    def fit(x: Tensor) -> Tensor:
        return nn.functional.pad(x[:rows], (0, 0, 0, max(0, rows - len(x))))

    return [LSTMState(fit(layer.output), fit(layer.cell)) for layer in state]


def _merge(before: BiLMState | None, after: BiLMState) -> BiLMState:
    """Update the rows of this batch; rows beyond it keep their state."""
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
    """Put `<S>` before each sentence and `</S>` after it: [a b _] -> [<S> a b </S> _]."""
    lengths = mask.sum(dim=1)
    framed = nn.functional.pad(x, (0, 0, 1, 1))
    framed[:, 0] = boundaries[0]
    framed[torch.arange(len(x), device=x.device), lengths + 1] = boundaries[1]
    return framed, torch.arange(framed.shape[1], device=x.device) < lengths[:, None] + 2


class Elmo(nn.Module):
    """`allennlp.modules.elmo.Elmo`: mixes of the layers of a released biLM.

    Args:
        options_file: options.json.
        weight_file: HDF5 weights.
        num_output_representations: How many mixes.
        requires_grad: Train the biLM too.
        do_layer_norm: Normalize each layer over the batch, as AllenNLP does.
        dropout: On each representation.
        vocab_to_cache: Words that the forward call accepts by number, as `word_inputs`. Token
            vectors are cached for all words anyway.
        keep_sentence_boundaries: Return the vectors of `<S>` and `</S>` too.
        scalar_mix_parameters: Fixed weights of the layers, before the softmax.
        module: A biLM to use instead of the files.
        stateful: Carry the state from one batch to the next, as AllenNLP does.
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
        """Set the training mode; AllenNLP has no dropout inside the biLM, even in training."""
        super().train(mode)
        self.elmo.bilm.eval()
        return self

    def get_output_dim(self) -> int:
        """Return the width of a representation."""
        return self.elmo.dim

    def reset_states(self) -> None:
        """Drop the state: the next batch starts a new text."""
        self._stateful_bilm.reset_states()

    def forward(
        self, inputs: Int[Tensor, "... W C"], word_inputs: Int[Tensor, "... W"] | None = None
    ) -> ElmoOutput:
        """Embed what `batch_to_ids` returns; (B, N, W, C) works too.

        `word_inputs` replaces the characters if all its numbers are in `vocab_to_cache`.
        """
        shape = inputs.shape[:-2]
        ids = inputs.flatten(0, -3)  # (B, W, C)
        words = (ids > 0).any(dim=-1)
        if word_inputs is not None and word_inputs.numel():
            numbers = word_inputs.flatten(0, -2)  # (B, W)
            if int(numbers.max()) < len(self._vocabulary):
                ids, words = self._vocabulary[numbers], numbers > 0
        framed, mask = add_boundaries(ids, words, self._boundaries)
        layers = self._stateful_bilm(framed, mask)
        outputs = self.elmo.mix(layers, mask)
        kept = mask if self._keep_sentence_boundaries else mask[:, 2:]
        return {
            "elmo_representations": [output.unflatten(0, shape) for output in outputs],
            "mask": kept.unflatten(0, shape),
        }


def _translate_state(_: nn.Module, state: dict[str, Tensor], prefix: str, *__: object) -> None:
    """Rename the mixes of a state dict written by AllenNLP; its biLM comes from the files."""
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


class ElmoEmbedder:
    """`allennlp.commands.elmo.ElmoEmbedder` (version 0.9): sentences to numpy arrays.

    Args:
        options_file: options.json.
        weight_file: HDF5 weights.
        cuda_device: The number of a GPU; -1 for the CPU.
        stateful: Carry the state from one batch to the next, as AllenNLP does.
    """

    def __init__(
        self,
        options_file: Path | str,
        weight_file: Path | str,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
    ) -> None:
        device = "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
        bilm = read_hdf5(Path(weight_file), Path(options_file)).to(device)
        self._max_characters = bilm.config.max_characters
        self.elmo_bilm = StatefulBiLM(PaddedRunner(new_engine(bilm)), stateful=stateful)

    def batch_to_embeddings(
        self, batch: Sequence[Sequence[str]]
    ) -> tuple[Float[Tensor, "B J W D"], Bool[Tensor, "B W"]]:
        """Return all layers of a batch, and the mask of its words."""
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
        """Write an HDF5 file with the vectors of an open file, one tokenized sentence per line.

        Args:
            input_file: Lines of text.
            output_file_path: The file to write.
            output_format: All layers, the top one or their average.
            batch_size: Sentences in a batch.
            forget_sentences: Leave out `sentence_to_index`.
            use_sentence_keys: The key of a sentence is the sentence, not its number.
        """
        lines = [line.strip() for line in input_file]
        if "" in lines:
            raise InputError(f"line {lines.index('') + 1} is blank; expected one sentence per line")
        keys = lines if use_sentence_keys else list(map(str, range(len(lines))))
        if len(set(keys)) < len(keys) or any("/" in key for key in keys):
            raise InputError(
                "use_sentence_keys needs sentences that are all different and have no '/', "
                "which HDF5 reserves; leave it out to have line numbers as keys"
            )
        vectors = self.embed_sentences((line.split() for line in lines), batch_size)
        with atomic_file(Path(output_file_path)) as path, h5py.File(path, "w") as file:
            for key, layers in zip(keys, vectors, strict=True):
                file[key] = _choose(layers, output_format)
            if not forget_sentences and not use_sentence_keys:
                index = dict(zip(lines, keys, strict=True))
                kind = h5py.string_dtype("utf-8")
                file.create_dataset("sentence_to_index", data=[json.dumps(index)], dtype=kind)


def _choose(layers: np.ndarray, which: Literal["all", "top", "average"]) -> np.ndarray:
    match which:
        case "all":
            return layers
        case "top":
            return layers[-1]
        case "average":
            return layers.mean(axis=0)
    raise InputError(f"output_format must be all, top or average, got {which!r}")


def _read(options: Path | str | None, weights: Path | str | None) -> BiLM:
    if options is None or weights is None:
        raise InputError("expected options_file and weight_file, or a biLM as module")
    return read_hdf5(Path(weights), Path(options))
