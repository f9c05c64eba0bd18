"""Settings of text classification; the defaults are those of sentiment, except the batch size."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from elmore.errors import InputError
from elmore.schema import at_least, below, check_settings
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig
from elmore.text.tokenize import TokenizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyDataConfig(TokenizerConfig):
    """Columns of the files, and tokenization."""

    text_column: str | None = None
    """Name of the column, or JSON key, of the texts; by default text, sentence, document or
    review."""

    label_column: str | None = None
    """Name of the column, or JSON key, of the labels; by default label, labels, class or
    category."""

    multi_label: bool = False
    """Whether a text may have any number of labels."""

    separator: str = ","
    """Separator of labels in a column, for `multi_label`; in JSON, labels may also be a list."""

    def __post_init__(self) -> None:
        if not self.separator:
            raise InputError("data.separator must not be empty")
        TokenizerConfig.__post_init__(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class BCNConfig:
    """The biattentive classification network."""

    hidden: Annotated[int, at_least(1)] = 300
    """Width of the feed-forward layer, and hidden size of each direction of the two biLSTMs."""

    classifier: Literal["relu", "maxout"] = "relu"
    """ReLU layers as in Peters et al. (2018), or batch norm and maxout as in McCann et al."""

    pieces: Annotated[int, at_least(1)] = 4
    """Linear pieces of a maxout unit."""

    dropout: Annotated[float, below(1)] = 0.25
    """Dropout on the feed-forward layer, and on the input of the classifier layers."""

    def __post_init__(self) -> None:
        check_settings(self, "network")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyConfig(TaskConfig):
    """All settings of text classification."""

    words: WordsConfig = field(default_factory=lambda: WordsConfig(train=True, dropout=0.25))
    elmo: ElmoConfig = field(
        default_factory=lambda: ElmoConfig(place="both", penalty=0.001, dropout=0.5)
    )
    training: FitConfig = field(
        default_factory=lambda: FitConfig(
            epochs=20, batch_size=64, lr=5e-4, lr_patience=2, average=0.999, patience=5
        )
    )
    data: ClassifyDataConfig = field(default_factory=ClassifyDataConfig)
    network: BCNConfig = field(default_factory=BCNConfig)
