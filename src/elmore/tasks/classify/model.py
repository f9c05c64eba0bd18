"""BCN, the biattentive classification network (McCann et al., 2017).

B texts, T words, K classes, P pieces of a maxout unit, I and O widths of input and output.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.mix import max_pool, mean_pool
from elmore.tasks.classes import (
    ClassProbabilities,
    LabelProbabilities,
    class_probabilities,
)
from elmore.tasks.classify.config import BCNConfig
from elmore.tasks.modules.attention import dot_attention
from elmore.tasks.modules.pooling import AttentivePool, min_pool
from elmore.tasks.modules.rnn import BiLSTM
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words


class ClassifyBatch(NamedTuple):
    """Texts and their classes."""

    words: WordBatch
    classes: Int[Tensor, " B"] | Float[Tensor, "B K"]
    """Indices of classes, or 1 for each class of a text."""


class BCN(TaskModel[ClassifyBatch, ClassProbabilities]):
    """biLSTM, attention of the sentence to itself, biLSTM, pooling, classifier.

    w = [word; ELMo]                    ELMo at the input
    x = biLSTM(relu(W w))
    c = sum_j softmax(x . x_j) x_j      biattention
    z = [biLSTM([x; x - c; x * c]);     the integrator
         ELMo]                          ELMo at the output
    classifier([max z; mean z; min z; self-attentive z])

    Deviation: McCann et al. encode two sequences, which are the same for a single sentence, and
    integrate each with a biLSTM of its own. This network encodes the sentence once and has one
    integrator, so it is a smaller model and a different function.
    """

    def __init__(self, config: BCNConfig, words: Words, classes: list[str]) -> None:
        super().__init__()
        self.words = words
        self.classes = classes
        self.project = nn.Linear(words.in_dim, config.hidden)
        self.encode = BiLSTM(config.hidden, config.hidden)
        self.integrate = BiLSTM(3 * self.encode.dim, config.hidden)
        dim = self.integrate.dim + words.out_dim
        self.attentive_pool = AttentivePool(dim)
        self.dropout = nn.Dropout(config.dropout)
        in_dim = 4 * dim
        self.classify = (
            maxout_layers(in_dim, len(classes), pieces=config.pieces, dropout=config.dropout)
            if config.classifier == "maxout"
            else relu_layers(in_dim, len(classes), dropout=config.dropout)
        )

    def forward(self, batch: ClassifyBatch) -> Float[Tensor, ""]:
        """Return the cross-entropy, averaged over sentences."""
        return functional.cross_entropy(self._scores(batch.words), batch.classes)

    def predict(self, batch: ClassifyBatch) -> list[ClassProbabilities]:
        """Return the class probabilities of each sentence."""
        return class_probabilities(self._scores(batch.words), self.classes)

    def _scores(self, words: WordBatch) -> Float[Tensor, "B K"]:
        at_input, at_output = self.words(words)
        x = self.encode(self.dropout(self.project(at_input).relu()), words.lengths)
        context = dot_attention(x, x, words.mask)
        z = self.integrate(torch.cat([x, x - context, x * context], dim=-1), words.lengths)
        z = torch.cat([z, at_output], dim=-1)
        pools = (max_pool, mean_pool, min_pool, self.attentive_pool)
        return self.classify(torch.cat([pool(z, words.mask) for pool in pools], dim=-1))


class MultiLabelBCN(BCN):
    """A network whose classes are independent of each other."""

    def forward(self, batch: ClassifyBatch) -> Float[Tensor, ""]:
        """Return the binary cross-entropy of all classes, averaged over texts and classes."""
        scores = self._scores(batch.words)
        return functional.binary_cross_entropy_with_logits(scores, batch.classes)

    def predict(self, batch: ClassifyBatch) -> list[ClassProbabilities]:
        """Return the probability of each class for each text."""
        rows = self._scores(batch.words).float().sigmoid().tolist()
        return [LabelProbabilities(zip(self.classes, row, strict=True)) for row in rows]


def relu_layers(in_dim: int, out_dim: int, *, dropout: float) -> nn.Sequential:
    """Return two ReLU layers, each half as wide as its input, and a linear one, with dropout."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise((in_dim, in_dim // 2, in_dim // 4)):
        layers += [nn.Dropout(dropout), nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(in_dim // 4, out_dim))


def maxout_layers(in_dim: int, out_dim: int, *, pieces: int, dropout: float) -> nn.Sequential:
    """Return three maxout layers, each with batch norm and dropout on its input."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise((in_dim, in_dim // 2, in_dim // 4, out_dim)):
        layers += [BatchNorm(wide), nn.Dropout(dropout), Maxout(wide, narrow, pieces=pieces)]
    return nn.Sequential(*layers)


class Maxout(nn.Module):
    """The maximum of several linear functions (Goodfellow et al., 2013)."""

    def __init__(self, in_dim: int, out_dim: int, *, pieces: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim * pieces)
        self.pieces = pieces

    def forward(self, x: Float[Tensor, "B I"]) -> Float[Tensor, "B O"]:
        """Return the maximum of P linear functions for each of the O outputs."""
        return self.linear(x).unflatten(-1, (-1, self.pieces)).amax(dim=-1)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that uses the running statistics for a batch of one example."""

    def forward(self, x: Float[Tensor, "B I"]) -> Float[Tensor, "B I"]:
        """Normalize each dimension over the batch."""
        if len(x) > 1:
            return super().forward(x)
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )
