"""Question answering: settings, after Clark and Gardner (2018) and the paper's appendix."""

from dataclasses import dataclass, field

from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class ReaderConfig:
    """The reader."""

    hidden: int = 100
    """Width of each direction of its GRUs; its linear layers have twice as much."""

    dropout: float = 0.2
    """On the input of GRUs and attention, the same dimensions at every word."""

    max_passage: int = 400
    """Tokens of a passage that are read in training; answers after them are left out."""

    max_answer: int = 17
    """Tokens of the longest answer that is given."""

    def __post_init__(self) -> None:
        check_settings(
            "reader", self, positive=("hidden", "max_passage", "max_answer"), shares=("dropout",)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class QaConfig(TaskConfig):
    """A run of question answering."""

    words: WordsConfig = field(
        # A passage counts with each of its questions, about five times. And the reader has
        # dropout of its own on all that it reads.
        default_factory=lambda: WordsConfig(
            min_count=10, char_dim=20, char_width=5, char_filters=100, dropout=0.0
        )
    )
    elmo: ElmoConfig = field(default_factory=lambda: ElmoConfig(place="both", penalty=0.0))
    training: FitConfig = field(
        # Deviation: Adam, where Clark and Gardner have Adadelta, which takes more epochs.
        default_factory=lambda: FitConfig(
            epochs=20, batch_size=60, lr=1e-3, lr_patience=1, average=0.999, patience=3
        )
    )
    reader: ReaderConfig = field(default_factory=ReaderConfig)
