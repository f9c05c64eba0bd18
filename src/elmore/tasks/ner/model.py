"""A biLSTM-CRF tagger (Lample et al., 2016; Ma and Hovy, 2016).

B sentences, T words, K tags.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.tasks.modules.crf import CRF, constraints
from elmore.tasks.modules.rnn import BiLSTM
from elmore.tasks.ner.config import TaggerConfig
from elmore.tasks.spans import SpanProbabilities, decode_tags, may_follow_bioes
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words


class NerBatch(NamedTuple):
    """Sentences and the tags of their words."""

    words: WordBatch
    tags: Int[Tensor, "B T"]


class NerTagger(TaskModel[NerBatch, SpanProbabilities]):
    """[word; characters; ELMo] -> biLSTM -> [h; ELMo] -> scores of BIOES tags -> CRF."""

    def __init__(self, config: TaggerConfig, words: Words, tags: list[str]) -> None:
        super().__init__()
        self.words = words
        self.tags = tags
        self.rnn = BiLSTM(
            words.in_dim, config.hidden, num_layers=config.num_layers, dropout=config.dropout
        )
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(self.rnn.dim + words.out_dim, len(tags))
        self.crf = CRF(constraints(tags, may_follow_bioes))

    def forward(self, batch: NerBatch) -> Float[Tensor, ""]:
        """Return the negative log-likelihood of the tags, averaged over sentences."""
        return self.crf(self._scores(batch.words), batch.tags, batch.words.mask).mean()

    def predict(self, batch: NerBatch) -> list[SpanProbabilities]:
        """Return the entities of each sentence, with the probabilities of their tags."""
        scores, mask = self._scores(batch.words), batch.words.mask
        paths = self.crf.decode(scores, mask)
        entities = [decode_tags([self.tags[tag] for tag in path]) for path in paths]
        tags = [
            (row, span.start, paths[row][span.start : span.end])
            for row, spans in enumerate(entities)
            for span in spans
        ]
        probabilities = iter(self.crf.probabilities(scores, mask, tags))
        return [dict(zip(spans, probabilities, strict=False)) for spans in entities]

    def _scores(self, words: WordBatch) -> Float[Tensor, "B T K"]:
        at_input, at_output = self.words(words)
        h = self.dropout(self.rnn(at_input, words.lengths))
        return self.score(torch.cat([h, at_output], dim=-1))
