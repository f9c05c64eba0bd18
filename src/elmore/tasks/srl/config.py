"""Semantic roles: settings, after He et al. (2017)."""

from dataclasses import dataclass, field

from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelerConfig:
    """The labeler."""

    predicate_dim: int = 100
    """Width of the mark that tells the predicate from other words."""

    hidden: int = 300
    """Width of a layer of the LSTM."""

    num_layers: int = 8
    """Layers of it, which read by turns from the left and from the right."""

    dropout: float = 0.1
    """On the output of each layer, also as its next step reads it."""

    max_length: int = 100
    """Longer sentences are left out of the training."""

    def __post_init__(self) -> None:
        check_settings(
            "labeler",
            self,
            positive=("predicate_dim", "hidden", "num_layers", "max_length"),
            shares=("dropout",),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SrlConfig(TaskConfig):
    """A run of semantic role labeling."""

    words: WordsConfig = field(default_factory=lambda: WordsConfig(train=True, dropout=0.0))
    elmo: ElmoConfig = field(
        default_factory=lambda: ElmoConfig(place="input", penalty=0.001, dropout=0.1)
    )
    training: FitConfig = field(
        # Deviation: He et al. have Adadelta and 500 epochs. Gradients that are clipped at 1 are so
        # small in each of 8 million numbers that its steps hardly depend on their size.
        default_factory=lambda: FitConfig(
            epochs=60, batch_size=80, lr=1e-3, clip_norm=1.0, lr_patience=2, patience=6
        )
    )
    labeler: LabelerConfig = field(default_factory=LabelerConfig)
