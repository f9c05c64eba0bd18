"""AllenNLP's `Elmo`, `ScalarMix`, `ElmoTokenEmbedder`, `ElmoEmbedder`, with the same results.

    from allennlp.modules.elmo import Elmo, batch_to_ids        # before
    from elmore.compat.allennlp import Elmo, batch_to_ids       # after

`python -m elmore.compat.allennlp elmo` is the command `allennlp elmo`.

As in AllenNLP, a model keeps the LSTM state of each row of a batch, and the next batch starts from
it: repeating a call gives a different result. Pass `stateful=False` to disable this.

B sentences, T tokens including the boundary tokens, W words, C characters, J layers, D dim.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from elmore.bilm.model import BiLM
from elmore.compat.allennlp_command import main
from elmore.compat.allennlp_embedder import ElmoEmbedder, read_files
from elmore.compat.allennlp_weights import rename
from elmore.compat.stateful import StatefulBiLM
from elmore.errors import InputError
from elmore.mix import BiLMRunner, normalize_batch
from elmore.schema import INTEGER, at_least, at_most, check
from elmore.text.characters import NUM_CHARACTERS, encode_words
from elmore.text.sentences import BOS_WORD, EOS_WORD, check_sentence

__all__ = [
    "Elmo",
    "ElmoEmbedder",
    "ElmoOutput",
    "ElmoTokenEmbedder",
    "ScalarMix",
    "add_boundaries",
    "batch_to_ids",
]


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
            initial = _read_scalar_parameters(initial_scalar_parameters, mixture_size)
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


def _read_scalar_parameters(values: Sequence[float], size: int) -> list[float]:
    problem = f"expected {size} scalar parameters, such as {[0.0] * size}, got {values!r}"
    try:
        numbers = [*map(float, values)]
    except (TypeError, ValueError) as error:
        raise TypeError(problem) from error
    if len(numbers) != size or not torch.tensor(numbers).softmax(dim=0).isfinite().all():
        raise InputError(problem)
    return numbers


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
            for speed: a frozen biLM caches token vectors.
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
        check("num_output_representations", num_output_representations, at_least(1), INTEGER)
        check("dropout", dropout, at_least(0), at_most(1))
        words = _check_vocabulary(vocab_to_cache)
        bilm = module if module is not None else read_files(options_file, weight_file)
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
        self.register_buffer("_vocabulary", encode_words(words), persistent=False)
        self.register_load_state_dict_pre_hook(_read_allennlp_weights)  # type: ignore[no-untyped-call]

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

    @property
    def stateful(self) -> bool:
        """Whether each batch starts from the state of the previous one."""
        return self._stateful_bilm.stateful

    @stateful.setter
    def stateful(self, stateful: bool) -> None:
        self._stateful_bilm.stateful = stateful

    def forward(
        self, inputs: Int[Tensor, "... W C"], word_inputs: Int[Tensor, "... W"] | None = None
    ) -> ElmoOutput:
        """Embed the character ids of `batch_to_ids`; further leading dimensions are allowed.

        The ids must not include boundary tokens, as those of `elmore.encode_sentences` do.
        `word_inputs` is used instead if all of its indices are within `vocab_to_cache`.
        """
        ids = _check_ids(inputs, self._boundaries).flatten(0, -3)  # (B, W, C)
        word_mask = (ids > 0).any(dim=-1)
        if word_inputs is not None:
            indices = _check_word_inputs(word_inputs, inputs.shape[:-1]).flatten(0, -2)  # (B, W)
            lowest, highest = indices.aminmax() if indices.numel() else (-1, -1)
            if lowest >= 0 and highest < len(self._vocabulary):
                ids, word_mask = self._vocabulary[indices], indices > 0
        ids, mask = add_boundaries(ids, word_mask, self._boundaries)
        layers = self._stateful_bilm(ids, mask)
        inner = slice(None) if self._keep_sentence_boundaries else slice(1, -1)
        output_mask = mask if self._keep_sentence_boundaries else mask[:, 2:]
        mixes = (getattr(self, f"scalar_mix_{k}") for k in range(self._num_mixes))
        outputs = (self._dropout(mix(layers.unbind(dim=1), mask)[:, inner]) for mix in mixes)
        return {
            "elmo_representations": [
                (output * output_mask[..., None]).unflatten(0, inputs.shape[:-2])
                for output in outputs
            ],
            "mask": output_mask.unflatten(0, inputs.shape[:-2]),
        }


def _read_allennlp_weights(
    elmo: Elmo,
    state: dict[str, Tensor],
    prefix: str,
    _metadata: object,
    _strict: bool,
    _missing: list[str],
    _unexpected: list[str],
    _errors: list[str],
) -> None:
    if problem := rename(state, prefix, elmo.bilm.config):
        # Even if not `strict`: one message is clearer than a list of missing and unexpected names.
        raise RuntimeError(problem)


def _check_ids(inputs: object, boundaries: Int[Tensor, "2 C"]) -> Int[Tensor, "... W C"]:
    """Return the inputs as int64; raise unless they are the character ids of a batch."""
    characters = boundaries.shape[-1]
    if not isinstance(inputs, Tensor):
        got = type(inputs).__name__
    elif not _has_integers(inputs) or inputs.ndim < 3 or inputs.shape[-1] != characters:
        got = f"a tensor of {inputs.dtype} with shape {tuple(inputs.shape)}"
    else:
        ids = inputs.long()
        if ids.numel() and ids.device.type == "cpu":  # on a GPU, this would synchronize
            lowest, highest = map(int, ids.aminmax())
            if lowest < 0 or highest >= NUM_CHARACTERS:
                raise InputError(
                    f"character ids must be from 0 to {NUM_CHARACTERS - 1}, got "
                    f"{lowest if lowest < 0 else highest}"
                )
        return ids
    raise TypeError(
        f"expected character ids, integers of shape (sentences, words, {characters}), got {got}. "
        "Encode tokenized sentences first: elmo(batch_to_ids(sentences))."
    )


def _check_word_inputs(word_inputs: object, shape: torch.Size) -> Int[Tensor, "... W"]:
    """Return the indices as int64; raise `TypeError` unless they are integers of this shape."""
    if not isinstance(word_inputs, Tensor):
        got = type(word_inputs).__name__
    elif not _has_integers(word_inputs) or word_inputs.shape != shape:
        got = f"a tensor of {word_inputs.dtype} with shape {tuple(word_inputs.shape)}"
    else:
        return word_inputs.long()
    raise TypeError(
        f"expected word_inputs to be a tensor of integers with shape {tuple(shape)}, like the "
        f"words of the character ids, got {got}. Convert it: torch.as_tensor(word_inputs).long()."
    )


def _has_integers(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def _check_vocabulary(words: object) -> Sequence[str]:
    """Return the words to cache; raise `TypeError` unless they are a list of strings."""
    if words is None:
        return []
    if isinstance(words, str) or not isinstance(words, Sequence):
        got = type(words).__name__
    elif wrong := [word for word in words if not isinstance(word, str)]:
        got = f"the word {wrong[0]!r:.40}"
    else:
        return words
    raise TypeError(
        f"expected vocab_to_cache to be a list of words, in the order of their indices, got {got}. "
        'For example: vocab_to_cache=["@@PADDING@@", "@@UNKNOWN@@", "the"].'
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
        check("projection_dim", projection_dim or None, at_least(1), INTEGER, optional=True)
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
        self,
        elmo_tokens: Int[Tensor, "... W C"] | None = None,
        word_inputs: Int[Tensor, "... W"] | None = None,
        *,
        inputs: Int[Tensor, "... W C"] | None = None,
    ) -> Float[Tensor, "... W D"]:
        """Embed the character ids of `batch_to_ids`. AllenNLP 0.9 calls them `inputs`."""
        ids = elmo_tokens if inputs is None else inputs
        representation = self._elmo(ids, word_inputs)["elmo_representations"][0]
        return representation if self._projection is None else self._projection(representation)


if __name__ == "__main__":
    main()
