"""A biLSTM-CRF tagger (Lample et al., 2016; Ma and Hovy, 2016).

B sentences, T words, K tags.
"""

from jaxtyping import Float
from torch import Tensor

from elmore.tasks.modules.crf import CRF, constraints
from elmore.tasks.spans import SpanProbabilities, decode_tags, may_follow_bioes
from elmore.tasks.tag.config import BiLSTMTaggerConfig
from elmore.tasks.tag.model import BiLSTMTagger, TagBatch
from elmore.tasks.words import Words


class NerTagger(BiLSTMTagger[SpanProbabilities]):
    """[word; characters; ELMo] -> biLSTM -> [h; ELMo] -> scores of BIOES tags -> CRF."""

    def __init__(self, config: BiLSTMTaggerConfig, words: Words, tags: list[str]) -> None:
        super().__init__(config, words, tags)
        self.crf = CRF(constraints(tags, may_follow_bioes))

    def forward(self, batch: TagBatch) -> Float[Tensor, ""]:
        """Return the negative log-likelihood of the tags, averaged over sentences."""
        return self.crf(self.tag_scores(batch.words), batch.tags, batch.words.mask).mean()

    def predict(self, batch: TagBatch) -> list[SpanProbabilities]:
        """Return the entities of each sentence, with the probabilities of their tags."""
        scores, mask = self.tag_scores(batch.words), batch.words.mask
        paths = self.crf.decode(scores, mask)
        entities = [decode_tags([self.tags[tag] for tag in path]) for path in paths]
        tags = [
            (row, span.start, paths[row][span.start : span.end])
            for row, spans in enumerate(entities)
            for span in spans
        ]
        probabilities = iter(self.crf.probabilities(scores, mask, tags))
        return [dict(zip(spans, probabilities, strict=False)) for spans in entities]
