"""Settings of named-entity recognition, after Peters et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field

from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, TextConfig, WordsConfig
from elmore.tasks.spans import Scheme
from elmore.tasks.tag.config import TaggerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class NerTaggerConfig(TaggerConfig):
    """The biLSTM-CRF tagger."""

    scheme: Scheme = "iob2"
    """Tagging scheme of predictions; input may use any of the three."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NerConfig(TaskConfig):
    """All settings of named-entity recognition."""

    words: WordsConfig = field(
        default_factory=lambda: WordsConfig(train=True, char_filters=128, dropout=0.5)
    )
    elmo: ElmoConfig = field(
        default_factory=lambda: ElmoConfig(place="input", penalty=0.1, dropout=0.25)
    )
    training: FitConfig = field(
        default_factory=lambda: FitConfig(
            epochs=75, batch_size=32, lr=1e-3, lr_patience=3, patience=10
        )
    )
    data: TextConfig = field(default_factory=TextConfig)
    tagger: NerTaggerConfig = field(default_factory=NerTaggerConfig)
