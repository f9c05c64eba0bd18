"""Settings of named-entity recognition, after Peters et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field

from elmore.schema import check_ranges
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig
from elmore.tasks.spans import Scheme


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggerConfig:
    """The biLSTM-CRF tagger."""

    hidden: int = 200
    """Hidden size of each direction of the biLSTM."""

    num_layers: int = 2
    """Number of biLSTM layers."""

    dropout: float = 0.5
    """Dropout between the layers and on the output of the biLSTM."""

    scheme: Scheme = "iob2"
    """Tagging scheme of predictions; input may use any of the three."""

    def __post_init__(self) -> None:
        check_ranges(
            "tagger", self, at_least={"hidden": 1, "num_layers": 1}, below_one=("dropout",)
        )


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
    tagger: TaggerConfig = field(default_factory=TaggerConfig)
