"""biLSTM taggers.

B sentences, T words, K tags.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.modules.rnn import BiLSTM
from elmore.tasks.tag.config import BiLSTMTaggerConfig
from elmore.tasks.task import Prediction, TaskModel
from elmore.tasks.words import WordBatch, Words

NO_TAG = -100
"""Tag id of padding, which `cross_entropy` ignores."""


class TagBatch(NamedTuple):
    """Sentences and the tags of their words."""

    words: WordBatch
    tags: Int[Tensor, "B T"]


class PredictedTag(NamedTuple):
    """The most probable tag of a word."""

    tag: str
    probability: float


class BiLSTMTagger(TaskModel[TagBatch, Prediction]):
    """[word; characters; ELMo] -> biLSTM -> [h; ELMo] -> scores of tags."""

    def __init__(self, config: BiLSTMTaggerConfig, words: Words, tags: list[str]) -> None:
        super().__init__()
        self.words = words
        self.tags = tags
        self.rnn = BiLSTM(
            words.in_dim, config.hidden, num_layers=config.num_layers, dropout=config.dropout
        )
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(self.rnn.dim + words.out_dim, len(tags))

    def tag_scores(self, words: WordBatch) -> Float[Tensor, "B T K"]:
        """Return the scores of all tags for each word."""
        at_input, at_output = self.words(words)
        h = self.dropout(self.rnn(at_input, words.lengths))
        return self.score(torch.cat([h, at_output], dim=-1))


class Tagger(BiLSTMTagger[list[PredictedTag]]):
    """A softmax over the tags of each word."""

    def forward(self, batch: TagBatch) -> Float[Tensor, ""]:
        """Return the cross-entropy, averaged over words."""
        scores = self.tag_scores(batch.words)
        return functional.cross_entropy(scores.transpose(1, 2), batch.tags, ignore_index=NO_TAG)

    def predict(self, batch: TagBatch) -> list[list[PredictedTag]]:
        """Return the most probable tag of each word."""
        best = self.tag_scores(batch.words).float().softmax(dim=-1).max(dim=-1)
        rows = zip(
            best.values.tolist(), best.indices.tolist(), batch.words.lengths.tolist(), strict=True
        )
        return [
            [PredictedTag(self.tags[i], p) for p, i in zip(ps[:n], ids[:n], strict=True)]
            for ps, ids, n in rows
        ]
