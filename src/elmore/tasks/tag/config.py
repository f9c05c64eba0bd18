"""Settings of tagging; the defaults are those of named-entity recognition."""

from dataclasses import dataclass, field
from typing import Annotated

from elmore.errors import InputError
from elmore.schema import at_least, below, check, check_settings
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig
from elmore.tasks.tag.data import CONLLU_COLUMNS
from elmore.text.tokenize import TokenizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TagDataConfig(TokenizerConfig):
    """Columns of the files, and tokenization of raw text."""

    column: str | int | None = None
    """Column of the tags: its number, counted from 1, or its name in CoNLL-U, such as `xpos`. By
    default `upos` in CoNLL-U and the last column of other files."""

    word_column: Annotated[int | None, at_least(1)] = None
    """Column of the words, counted from 1; by default 2 in CoNLL-U and 1 in other files."""

    def __post_init__(self) -> None:
        if isinstance(self.column, str) and self.column not in CONLLU_COLUMNS:
            raise InputError(
                f"data.column must be a number or one of {', '.join(CONLLU_COLUMNS)}, got "
                f"{self.column!r}"
            )
        if isinstance(self.column, int):
            check("data.column", self.column, at_least(1))
        check_settings(self, "data")
        TokenizerConfig.__post_init__(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class BiLSTMTaggerConfig:
    """The biLSTM tagger."""

    hidden: Annotated[int, at_least(1)] = 200
    """Hidden size of each direction of the biLSTM."""

    num_layers: Annotated[int, at_least(1)] = 2
    """Number of biLSTM layers."""

    dropout: Annotated[float, below(1)] = 0.5
    """Dropout between the layers and on the output of the biLSTM."""

    def __post_init__(self) -> None:
        check_settings(self, "tagger")


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceLabelingConfig(TaskConfig):
    """Settings that tagging and named-entity recognition share."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class TagConfig(SequenceLabelingConfig):
    """All settings of tagging."""

    data: TagDataConfig = field(default_factory=TagDataConfig)
    tagger: BiLSTMTaggerConfig = field(default_factory=BiLSTMTaggerConfig)
