"""Settings of sentiment classification, after McCann et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from elmore.schema import at_least, check_settings
from elmore.tasks.classify.config import BCNConfig
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig
from elmore.text.tokenize import TokenizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SentimentDataConfig(TokenizerConfig):
    """Classes, training examples and tokenization."""

    classes: Literal[5, 2] = 5
    """Five classes from very negative to very positive, or two, without neutral sentences."""

    train_on: Literal["phrases", "sentences"] = "phrases"
    """Train on all phrases of a tree or on sentences only; dev and test are always sentences."""

    min_phrase: Annotated[int, at_least(1)] = 4
    """Minimum number of words in a training phrase, as in the paper; sentences may be shorter."""

    def __post_init__(self) -> None:
        check_settings(self, "data")
        TokenizerConfig.__post_init__(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentimentConfig(TaskConfig):
    """All settings of sentiment classification."""

    # Deviation: word vectors are fine-tuned. In GloVe, good and bad are close to each other.
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
