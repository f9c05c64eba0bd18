"""A frozen transformer as the encoder of a task, in place of a biLM.

The vectors of a word are the means of those of its subwords. Layer 0 is the output of the embedding
layer. A sentence that is too long for the transformer is read in consecutive parts.

B parts of sentences, S subwords of a part, J layers, N words of a batch, D dim.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from elmore.checkpoint.directory import CONFIG, MODEL_TYPE
from elmore.checkpoint.hash import hash_weights
from elmore.device import Device, find_device
from elmore.embedder import Dtype, Precision
from elmore.errors import InputError, require
from elmore.inference.batches import Embedded
from elmore.text.sentences import Sentence, check_sentence
from elmore.text.tokenize import Tokenization

_WINDOW = 1024  # sentences that are sorted by length, so that batches have little padding
_BATCH_SENTENCES = 32


def is_transformer(path: Path) -> bool:
    """Return whether a path is the folder of a transformer of Hugging Face."""
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        return config.get("model_type", MODEL_TYPE) != MODEL_TYPE
    except (OSError, ValueError, AttributeError):
        return False


def hash_transformer(path: Path) -> str:
    """Return a hash of the weights of a transformer.

    Raises:
        InputError: If there are no weights, or they are damaged.
    """
    weights: dict[str, Tensor] = {}
    try:
        for file in sorted(path.glob("*.safetensors")):
            weights |= load_file(file)
    except SafetensorError as error:
        raise InputError(f"the weights in {path} are damaged ({error})") from error
    if not weights:
        raise InputError(f"{path} has no weights; expected model.safetensors")
    return hash_weights(weights)


class TransformerEncoder:
    """A frozen transformer; see `elmore.tasks.encoder.Encoder`.

    Args:
        path: Its folder, with `model.safetensors` and a fast tokenizer.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        precision: `fp32` or `bf16`.

    Raises:
        InputError: If the folder has no weights or no fast tokenizer.
        MissingExtraError: If transformers is not installed.
    """

    tokenization: Tokenization | None = None

    def __init__(
        self, path: Path, *, device: Device = "auto", precision: Precision = "fp32"
    ) -> None:
        if precision == "int8":
            raise InputError(f"{path} is a transformer, which runs in fp32 or bf16, not in int8")
        transformers = require("transformers", extra="hf")
        self.device = find_device(device)
        self.weights_hash = hash_transformer(path)
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
                path, local_files_only=True, trust_remote_code=False
            )
            model = _load_model(transformers, path)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{path} cannot be loaded as a transformer: {reason}") from error
        if not self._tokenizer.is_fast:
            raise InputError(f"{path} has no fast tokenizer, which knows the word of a subword")
        if self._tokenizer.pad_token is None:
            raise InputError(f"the tokenizer in {path} has no padding token, which batches need")
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._model: Any = model.to(self.device, dtype).eval().requires_grad_(False)
        longest = self._tokenizer.model_max_length
        self._max_subwords = int(min(longest, _num_positions(model) or longest))

    @property
    def num_layers(self) -> int:
        """Number of layers: the embeddings, and one per transformer block."""
        return int(self._model.config.num_hidden_layers) + 1

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self._model.config.hidden_size)

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def embed(self, sentences: Iterable[Sentence]) -> list[Float[np.ndarray, "J W D"]]:
        """Return the vectors of each sentence."""
        return [vectors for _, vectors in self.stream(sentences)]

    def stream(
        self, sentences: Iterable[Sentence], *, dtype: Dtype = "float32"
    ) -> Iterator[Embedded]:
        """Yield tokens and vectors sentence by sentence, in constant memory."""
        checked = (list(check_sentence(words, i)) for i, words in enumerate(sentences))
        while window := list(islice(checked, _WINDOW)):
            order = sorted(range(len(window)), key=lambda i: len(window[i]))
            vectors: dict[int, np.ndarray] = {}
            for start in range(0, len(order), _BATCH_SENTENCES):
                rows = order[start : start + _BATCH_SENTENCES]
                batch = self._encode([window[row] for row in rows])
                vectors |= zip(rows, (v.astype(dtype) for v in batch), strict=True)
            yield from (Embedded(words, vectors.pop(row)) for row, words in enumerate(window))

    def free(self) -> None:
        """Nothing is cached."""

    @torch.inference_mode()
    def _encode(self, sentences: Sequence[list[str]]) -> list[Float[np.ndarray, "J W D"]]:
        lengths = list(map(len, sentences))
        subwords = self._tokenizer(
            sentences,
            is_split_into_words=True,
            padding=True,
            truncation=True,
            max_length=self._max_subwords,
            return_overflowing_tokens=True,
            return_tensors="pt",
        )
        first_word = [0, *accumulate(lengths)]
        samples = subwords.pop("overflow_to_sample_mapping").tolist()
        words = torch.tensor(
            [
                [-1 if word is None else first_word[sample] + word for word in subwords.word_ids(b)]
                for b, sample in enumerate(samples)
            ]
        )  # (B, S), the word of each subword
        states = self._model(**subwords.to(self.device), output_hidden_states=True).hidden_states
        means = mean_by_word(torch.stack(states), words.to(self.device), sum(lengths))
        return np.split(means.float().cpu().numpy(), first_word[1:-1], axis=1)


def _load_model(transformers: Any, path: Path) -> Any:
    """Load a model without a progress bar.

    Raises:
        ValueError: If weights are missing: transformers would draw random ones. The pooler, which
            many models do not have, is not used.
    """
    logging = transformers.utils.logging
    had_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model, report = transformers.AutoModel.from_pretrained(
            path,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    finally:
        if had_bar:
            logging.enable_progress_bar()
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if missing:
        raise ValueError(f"{len(missing)} weights are missing, such as {missing[0]}")
    return model


def _num_positions(model: Any) -> int | None:
    """Return how many subwords have a position embedding; None if there are no such embeddings.

    RoBERTa and its relatives number positions from `padding_idx` + 1.
    """
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None:
        return None
    unused = (
        module.padding_idx + 1
        for name, module in model.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    )
    return int(positions) - next(unused, 0)


def mean_by_word(
    states: Float[Tensor, "J B S D"], words: Int[Tensor, "B S"], num_words: int
) -> Float[Tensor, "J N D"]:
    """Return the mean of the subwords of each word; zeros for a word without any.

    Args:
        states: Vectors of subwords.
        words: The word of each subword; -1 for none.
        num_words: Number of words (N).
    """
    is_word = words >= 0
    index = words[is_word]
    counts = torch.bincount(index, minlength=num_words).clamp(min=1)
    sums = states.new_zeros(len(states), num_words, states.shape[-1])
    sums.index_add_(1, index, states[:, is_word])
    return sums / counts[:, None]
