"""Settings of semantic role labeling, after He et al. (2017)."""

from dataclasses import dataclass, field
from typing import Annotated

from elmore.schema import at_least, below, check_settings
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelerConfig:
    """The deep highway LSTM."""

    predicate_dim: Annotated[int, at_least(1)] = 100
    """Dimension of the embedding that marks the predicate."""

    hidden: Annotated[int, at_least(1)] = 300
    """Hidden size of each LSTM layer."""

    num_layers: Annotated[int, at_least(1)] = 8
    """Number of LSTM layers, which alternate between left-to-right and right-to-left."""

    dropout: Annotated[float, below(1)] = 0.1
    """Recurrent dropout: on the output of each layer, also where its next step reads it."""

    max_length: Annotated[int, at_least(1)] = 100
    """Longer sentences are excluded from training."""

    def __post_init__(self) -> None:
        check_settings(self, "labeler")


@dataclass(frozen=True, kw_only=True, slots=True)
class SrlConfig(TaskConfig):
    """All settings of semantic role labeling."""

    words: WordsConfig = field(default_factory=lambda: WordsConfig(train=True, dropout=0.0))
    elmo: ElmoConfig = field(
        default_factory=lambda: ElmoConfig(place="input", penalty=0.001, dropout=0.1)
    )
    training: FitConfig = field(
        # Deviation: Adam. He et al. train with Adadelta for 500 epochs; Adam needs far fewer.
        default_factory=lambda: FitConfig(
            epochs=60, batch_size=80, lr=1e-3, clip_norm=1.0, lr_patience=2, patience=6
        )
    )
    labeler: LabelerConfig = field(default_factory=LabelerConfig)
