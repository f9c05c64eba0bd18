"""Named entities: settings, after Peters et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field

from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig, check_settings
from elmore.tasks.spans import Scheme


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggerConfig:
    """The tagger."""

    hidden: int = 200
    """Width of each direction of the biLSTM."""

    num_layers: int = 2
    """Layers of it."""

    dropout: float = 0.5
    """Between its layers and on its output."""

    scheme: Scheme = "iob2"
    """Tags that predictions are written in; any of the three is read."""

    def __post_init__(self) -> None:
        check_settings("tagger", self, positive=("hidden", "num_layers"), shares=("dropout",))


@dataclass(frozen=True, kw_only=True, slots=True)
class NerConfig(TaskConfig):
    """A run of named-entity recognition."""

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
