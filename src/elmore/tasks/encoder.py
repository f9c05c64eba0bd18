"""The interface of a frozen encoder, from which tasks take the layers of words.

`Embedder`, a biLM, is one. `TransformerEncoder` is another, to compare ELMo with.

J layers, W words of a sentence, D dim.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float

from elmore.embedder import Dtype
from elmore.inference.batches import Embedded
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenization


class Encoder(Protocol):
    """Returns the vectors of tokenized sentences: one per layer and word."""

    device: torch.device
    weights_hash: str
    """Identifies the weights."""

    tokenization: Tokenization | None
    """Tokenizer and language of the training text, if known."""

    @property
    def num_layers(self) -> int:
        """Number of layers (J)."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors (D)."""

    def embed(self, sentences: Iterable[Sentence]) -> list[Float[np.ndarray, "J W D"]]:
        """Return the vectors of each sentence."""

    def stream(
        self, sentences: Iterable[Sentence], *, dtype: Dtype = "float32"
    ) -> Iterator[Embedded]:
        """Yield tokens and vectors sentence by sentence."""

    def free(self) -> None:
        """Free what the next call can compute again."""
