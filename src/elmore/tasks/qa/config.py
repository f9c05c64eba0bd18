"""Settings of question answering, after Clark and Gardner (2018) and the paper's appendix."""

from dataclasses import dataclass, field
from typing import Annotated

from elmore.schema import at_least, below, check_settings
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ReaderConfig:
    """BiDAF with self-attention."""

    hidden: Annotated[int, at_least(1)] = 100
    """Hidden size of each direction of the GRUs; linear layers are twice as wide."""

    dropout: Annotated[float, below(1)] = 0.2
    """Variational dropout on the input of GRUs and attention."""

    max_passage: Annotated[int, at_least(1)] = 400
    """In training, passages are cut to this many tokens, and answers beyond that are dropped."""

    max_answer: Annotated[int, at_least(1)] = 17
    """Maximum number of tokens in a predicted answer."""

    def __post_init__(self) -> None:
        check_settings(self, "reader")


@dataclass(frozen=True, kw_only=True, slots=True)
class QaConfig(TaskConfig):
    """All settings of question answering."""

    words: WordsConfig = field(
        # No dropout: the reader applies its own to all of its input.
        default_factory=lambda: WordsConfig(
            char_dim=20, char_width=5, char_filters=100, dropout=0.0
        )
    )
    elmo: ElmoConfig = field(default_factory=lambda: ElmoConfig(place="both", penalty=0.0))
    training: FitConfig = field(
        # Deviation: Adam. Clark and Gardner use Adadelta, which needs more epochs.
        default_factory=lambda: FitConfig(
            epochs=20, batch_size=60, lr=1e-3, lr_patience=1, average=0.999, patience=3
        )
    )
    reader: ReaderConfig = field(default_factory=ReaderConfig)
