"""ESIM, the enhanced sequential inference model (Chen et al., 2017).

B pairs, so S = 2B sentences, T words, D dim, K classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.mix import max_pool, mean_pool
from elmore.tasks.classes import ClassProbabilities, class_probabilities
from elmore.tasks.entailment.config import ESIMConfig
from elmore.tasks.modules.attention import dot_attention
from elmore.tasks.modules.dropout import VariationalDropout
from elmore.tasks.modules.rnn import BiLSTM
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words


class EntailmentBatch(NamedTuple):
    """Pairs of sentences and their classes."""

    words: WordBatch
    """2B sentences: first all premises, then all hypotheses, because they share all layers."""

    classes: Int[Tensor, " B"]


class ESIM(TaskModel[EntailmentBatch, ClassProbabilities]):
    """Encode, align, compare, compose, pool, classify.

    a = [biLSTM([word; ELMo]); ELMo]            the premise; b is the hypothesis, encoded likewise
    a' = sum_j softmax(a . b_j) b_j             the words of b that align with a word of a
    v = biLSTM(relu(F [a; a'; a - a'; a * a']))
    classifier([mean v_a; max v_a; mean v_b; max v_b])

    ELMo at the output is added after the first biLSTM, as in the paper's appendix.

    Args:
        config: Sizes and dropout.
        words: Word representations.
        classes: Names of the classes.
        weights: Weights of the classes in the loss.
    """

    weights: Float[Tensor, " K"]

    def __init__(
        self, config: ESIMConfig, words: Words, classes: list[str], weights: Float[Tensor, " K"]
    ) -> None:
        super().__init__()
        self.words = words
        self.classes = classes
        self.register_buffer("weights", weights)
        H = config.hidden
        self.encode = BiLSTM(words.in_dim, H)
        self.project = nn.Linear(4 * (self.encode.dim + words.out_dim), H)
        self.compose = BiLSTM(H, H)
        self.rnn_dropout = VariationalDropout(config.rnn_dropout)
        self.attention_dropout = nn.Dropout(config.attention_dropout)
        self.classify = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(4 * self.compose.dim, H),
            nn.ReLU(),  # as in the paper; Chen et al. use tanh
            nn.Dropout(config.dropout),
            nn.Linear(H, len(classes)),
        )

    def forward(self, batch: EntailmentBatch) -> Float[Tensor, ""]:
        """Return the weighted cross-entropy, averaged over pairs."""
        losses = functional.cross_entropy(
            self._scores(batch.words), batch.classes, weight=self.weights, reduction="none"
        )
        # Not divided by the sum of the weights, as PyTorch does: a batch of rare classes only
        # would then count no more than any other.
        return losses.mean()

    def predict(self, batch: EntailmentBatch) -> list[ClassProbabilities]:
        """Return the class probabilities of each pair."""
        return class_probabilities(self._scores(batch.words), self.classes)

    def _scores(self, words: WordBatch) -> Float[Tensor, "B K"]:
        at_input, at_output = self.words(words)
        h = self.encode(self.rnn_dropout(at_input), words.lengths)
        h = torch.cat([h, at_output], dim=-1)
        aligned = align(h, words)
        compared = torch.cat([h, aligned, h - aligned, h * aligned], dim=-1)
        v = self.project(self.attention_dropout(compared)).relu()
        v = self.compose(self.rnn_dropout(v), words.lengths)
        pooled = torch.cat([mean_pool(v, words.mask), max_pool(v, words.mask)], dim=-1)
        return self.classify(torch.cat(pooled.chunk(2), dim=-1))


def align(h: Float[Tensor, "S T D"], words: WordBatch) -> Float[Tensor, "S T D"]:
    """Return for each word the attention-weighted mean of the other sentence of its pair."""
    (premise, hypothesis), (premise_mask, hypothesis_mask) = h.chunk(2), words.mask.chunk(2)
    return torch.cat(
        [
            dot_attention(premise, hypothesis, hypothesis_mask),
            dot_attention(hypothesis, premise, premise_mask),
        ]
    )


def balanced_weights(counts: Sequence[int]) -> Float[Tensor, " K"]:
    """Return weights inversely proportional to class counts; the mean over examples is 1."""
    count = torch.tensor(counts, dtype=torch.float)
    return count.sum() / (len(counts) * count)
