"""Settings of named-entity recognition, after Peters et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field

from elmore.tasks.spans import Scheme
from elmore.tasks.tag.config import BiLSTMTaggerConfig, SequenceLabelingConfig
from elmore.text.tokenize import TokenizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class NerTaggerConfig(BiLSTMTaggerConfig):
    """The biLSTM-CRF tagger."""

    scheme: Scheme = "iob2"
    """Tagging scheme of predictions; input may use any of the three."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NerConfig(SequenceLabelingConfig):
    """All settings of named-entity recognition."""

    data: TokenizerConfig = field(default_factory=TokenizerConfig)
    tagger: NerTaggerConfig = field(default_factory=NerTaggerConfig)
