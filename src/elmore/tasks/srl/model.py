"""A deep highway LSTM for semantic role labeling (He et al., 2017).

B predicates, each with its sentence, T words, K tags.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.modules.crf import Transitions, constraints, viterbi
from elmore.tasks.modules.highway_lstm import AlternatingLSTM
from elmore.tasks.spans import SpanProbabilities, decode_tags, may_follow_iob2
from elmore.tasks.srl.config import LabelerConfig
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words

NO_TAG = -100
"""Tag of padding, which the loss ignores."""


class SrlBatch(NamedTuple):
    """Sentences, the position of the predicate in each, and the tags of the words."""

    words: WordBatch
    predicates: Int[Tensor, " B"]
    tags: Int[Tensor, "B T"]


class RoleLabeler(TaskModel[SrlBatch, SpanProbabilities]):
    """[word; ELMo; predicate mark] -> highway LSTM -> [h; ELMo] -> scores of IOB2 tags."""

    allowed_follow: Tensor
    allowed_first: Tensor
    allowed_last: Tensor

    def __init__(self, config: LabelerConfig, words: Words, tags: list[str]) -> None:
        super().__init__()
        self.words = words
        self.tags = tags
        self.mark = nn.Embedding(2, config.predicate_dim)
        self.rnn = AlternatingLSTM(
            words.in_dim + config.predicate_dim,
            config.hidden,
            num_layers=config.num_layers,
            dropout=config.dropout,
        )
        self.score = nn.Linear(self.rnn.dim + words.out_dim, len(tags))
        for name, score in constraints(tags, may_follow_iob2)._asdict().items():
            self.register_buffer(f"allowed_{name}", score, persistent=False)

    def forward(self, batch: SrlBatch) -> Float[Tensor, ""]:
        """Return the cross-entropy of the tags, summed over words and averaged over sentences."""
        scores = self._scores(batch).flatten(0, 1)
        tags = batch.tags.flatten()
        loss = functional.cross_entropy(scores, tags, ignore_index=NO_TAG, reduction="sum")
        return loss / len(batch.tags)

    def predict(self, batch: SrlBatch) -> list[SpanProbabilities]:
        """Return the roles of each predicate, with the probabilities of their tags.

        They are the best sequence of tags that is valid IOB2.
        """
        allowed = Transitions(self.allowed_follow, self.allowed_first, self.allowed_last)
        scores = self._scores(batch)
        # Unnormalized scores will do here: log p differs from them by a constant per word.
        paths = viterbi(scores, batch.words.mask, allowed)
        predictions = []
        for path, log_p in zip(paths, scores.log_softmax(dim=-1).cpu(), strict=True):
            log_p_of_tags = log_p[range(len(path)), path]
            roles = decode_tags([self.tags[tag] for tag in path])
            predictions.append(
                {role: log_p_of_tags[role.start : role.end].sum().exp().item() for role in roles}
            )
        return predictions

    def _scores(self, batch: SrlBatch) -> Float[Tensor, "B T K"]:
        at_input, at_output = self.words(batch.words)
        positions = torch.arange(at_input.shape[1], device=at_input.device)
        marks = self.mark((positions == batch.predicates[:, None]).long())
        h = self.rnn(torch.cat([at_input, marks], dim=-1), batch.words.lengths)
        return self.score(torch.cat([h, at_output], dim=-1))
