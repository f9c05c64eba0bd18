"""Sentiment: settings, after McCann et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field
from typing import Literal

from elmore.errors import InputError
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class SentimentDataConfig:
    """What is learned, and from what."""

    classes: Literal[5, 2] = 5
    """From very negative to very positive; or negative and positive alone, without neutral."""

    train_on: Literal["phrases", "sentences"] = "phrases"
    """Every phrase of a training tree, or the sentence alone; dev and test are sentences."""

    min_phrase: int = 4
    """Words of a phrase, at least, as in the paper; sentences may be shorter."""

    def __post_init__(self) -> None:
        if self.min_phrase < 1:
            raise InputError(f"data.min_phrase must be at least 1, got {self.min_phrase}")


@dataclass(frozen=True, kw_only=True, slots=True)
class BCNConfig:
    """The biattentive classification network."""

    hidden: int = 300
    """Width of the feed-forward layer, and of each direction of the two biLSTMs."""

    classifier: Literal["relu", "maxout"] = "relu"
    """ReLU as in Peters et al. (2018), or batch norm and maxout as in McCann et al. (2017)."""

    pieces: int = 4
    """Linear functions that a maxout takes the maximum of."""

    dropout: float = 0.25
    """On the feed-forward layer, and on what the last layers read."""

    def __post_init__(self) -> None:
        check_settings("network", self, positive=("hidden", "pieces"), shares=("dropout",))


@dataclass(frozen=True, kw_only=True, slots=True)
class SentimentConfig(TaskConfig):
    """A run of sentiment classification."""

    # Deviation: vectors learn. To GloVe, good and bad are much the same.
    words: WordsConfig = field(default_factory=lambda: WordsConfig(train=True, dropout=0.25))
    elmo: ElmoConfig = field(
        default_factory=lambda: ElmoConfig(place="both", penalty=0.001, dropout=0.5)
    )
    training: FitConfig = field(
        default_factory=lambda: FitConfig(
            epochs=20, batch_size=128, lr=5e-4, lr_patience=2, average=0.999, patience=5
        )
    )
    data: SentimentDataConfig = field(default_factory=SentimentDataConfig)
    network: BCNConfig = field(default_factory=BCNConfig)
