"""Test batches in the input format of engines, and their layers by the plain biLM."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.bilm.config import BiLMConfig
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.checkpoint.pretrained import read_pretrained
from elmore.inference import layout
from elmore.text.characters import encode_words
from elmore.text.sentences import TokenBatch, batch_sentences
from tests.gpu import DEVICE
from tests.oracles.releases import VARIANTS, write_release

SENTENCES = [["rates"], ["the", "bank", "of", "the", "river", "."], [], ["Banks", "fail"]]


class Case(NamedTuple):
    """A biLM, a padded batch of sentences, and the same batch for an engine."""

    bilm: BiLM
    padded: TokenBatch
    table: Tensor
    """Token vectors; `<S>` and `</S>` are rows 0 and 1."""
    tokens: np.ndarray
    """The table row of each token, boundary tokens included."""
    lengths: np.ndarray
    """The number of tokens of each sentence, boundary tokens included."""

    def without_boundaries(self) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens and lengths without boundary tokens."""
        sentences = np.split(self.tokens, np.cumsum(self.lengths)[:-1])
        return np.concatenate([s[1:-1] for s in sentences]), self.lengths - 2

    def expected(self, state: BiLMState | None = None) -> tuple[Tensor, BiLMState]:
        """Return the layers (J, N, 2D) of all tokens by the plain biLM, and its state."""
        layers, after = self.bilm(*self.padded, state)
        return layers.transpose(0, 1)[:, self.padded.mask], after

    def words_of(self, layers: Tensor) -> Tensor:
        """Drop the boundary tokens: (J, N, 2D) -> (J, number of words, 2D)."""
        sentences = layers.split(self.lengths.tolist(), dim=1)
        return torch.cat([sentence[:, 1:-1] for sentence in sentences], dim=1)


@torch.no_grad()
def make_case(
    bilm: BiLM, encode: Callable[[list[str]], Tensor], sentences: list[list[str]] = SENTENCES
) -> Case:
    with_boundaries = [["<S>", *words, "</S>"] for words in sentences]
    distinct = dict.fromkeys(chain(["<S>", "</S>"], *with_boundaries))
    row = {word: i for i, word in enumerate(distinct)}
    return Case(
        bilm,
        batch_sentences(sentences, encode),
        bilm.encode(encode(list(row))),
        np.array([row[word] for words in with_boundaries for word in words], dtype=np.int64),
        np.array([len(words) for words in with_boundaries], dtype=np.int64),
    )


def random_state(config: BiLMConfig, B: int) -> BiLMState:
    return [
        LSTMState(0.3 * torch.randn(B, config.dim), 0.3 * torch.randn(B, config.cell_dim))
        for _ in range(2 * config.num_layers)
    ]


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add fewer steps of padding to batches of the CUDA engine in Triton's slow interpreter."""
    if DEVICE == "cpu":
        monkeypatch.setattr(layout, "_MULTIPLE", 2)


@pytest.fixture(params=VARIANTS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """A batch for each variant of the released weights."""
    release = write_release(tmp_path, VARIANTS[request.param])
    bilm, vocabulary, *_ = read_pretrained(release.weights_file)
    width = bilm.config.max_characters
    encode = vocabulary.encode_words if vocabulary else lambda words: encode_words(words, width)
    return make_case(bilm.eval(), encode)


@pytest.fixture
def tiny(bilm: BiLM) -> Case:
    return make_case(bilm, encode_words)
