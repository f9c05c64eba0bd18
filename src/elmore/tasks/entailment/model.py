"""Two sentences to what one means for the other: ESIM (Chen et al., 2017).

B pairs, so S = 2B sentences, T words, D dim, K classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.mix import max_pool, mean_pool
from elmore.tasks.classes import Answer, answers
from elmore.tasks.entailment.config import ESIMConfig
from elmore.tasks.modules.attention import attend
from elmore.tasks.modules.dropout import WordDropout
from elmore.tasks.modules.rnn import BiLSTM
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words


class EntailmentBatch(NamedTuple):
    """All premises, after them all hypotheses, and the numbers of the pairs' classes."""

    words: WordBatch
    """Of 2B sentences: both kinds go through the same layers, so they go at once."""

    classes: Int[Tensor, " B"]


class ESIM(TaskModel[EntailmentBatch, Answer]):
    """Encode, align, compare, compose, pool, classify.

    a = [biLSTM([word; ELMo]); ELMo]            of the premise; b of the hypothesis in the same way
    a' = sum_j softmax(a . b_j) b_j             what the hypothesis says to a word of the premise
    v = biLSTM(relu(F [a; a'; a - a'; a * a']))
    classifier([mean v_a; max v_a; mean v_b; max v_b])

    ELMo at the output stands beside that of the first biLSTM, as in the paper's appendix.

    Args:
        config: Sizes.
        words: What a word is.
        classes: Names of the classes.
        weights: Of the classes in the loss.
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
        self.rnn_dropout = WordDropout(config.rnn_dropout)
        self.attention_dropout = nn.Dropout(config.attention_dropout)
        self.classify = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(4 * self.compose.dim, H),
            nn.ReLU(),  # as in the paper; tanh in Chen et al.
            nn.Dropout(config.dropout),
            nn.Linear(H, len(classes)),
        )

    def forward(self, batch: EntailmentBatch) -> Float[Tensor, ""]:
        """Return -log p of the right class, for an average pair."""
        losses = functional.cross_entropy(
            self._scores(batch.words), batch.classes, weight=self.weights, reduction="none"
        )
        # Not over the weights of the batch, or a rare class alone in it would count as a usual one.
        return losses.mean()

    def predict(self, batch: EntailmentBatch) -> list[Answer]:
        """Return the probabilities of the classes for each pair."""
        return answers(self._scores(batch.words), self.classes)

    def _scores(self, words: WordBatch) -> Float[Tensor, "B K"]:
        at_input, at_output = self.words(words)
        h = self.encode(self.rnn_dropout(at_input), words.lengths)
        h = torch.cat([h, at_output], dim=-1)
        aligned = align(h, words)
        found = torch.cat([h, aligned, h - aligned, h * aligned], dim=-1)
        v = self.project(self.attention_dropout(found)).relu()
        v = self.compose(self.rnn_dropout(v), words.lengths)
        pooled = torch.cat([mean_pool(v, words.mask), max_pool(v, words.mask)], dim=-1)
        return self.classify(torch.cat(pooled.chunk(2), dim=-1))


def align(h: Float[Tensor, "S T D"], words: WordBatch) -> Float[Tensor, "S T D"]:
    """Return for each word what it finds in the other sentence of its pair."""
    (premise, hypothesis), (premise_mask, hypothesis_mask) = h.chunk(2), words.mask.chunk(2)
    return torch.cat(
        [
            attend(premise, hypothesis, hypothesis_mask),
            attend(hypothesis, premise, premise_mask),
        ]
    )


def balanced_weights(counts: Sequence[int]) -> Float[Tensor, " K"]:
    """Return weights that make all classes count the same, and an average example 1."""
    count = torch.tensor(counts, dtype=torch.float)
    return count.sum() / (len(counts) * count)
