"""Settings of sentiment classification, after McCann et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field
from typing import Literal

from elmore.schema import check_ranges
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig
from elmore.text.tokenize import TokenizerName, choose_tokenization


@dataclass(frozen=True, kw_only=True, slots=True)
class SentimentDataConfig:
    """Classes, training examples and tokenization."""

    classes: Literal[5, 2] = 5
    """Five classes from very negative to very positive, or two, without neutral sentences."""

    train_on: Literal["phrases", "sentences"] = "phrases"
    """Train on all phrases of a tree or on sentences only; dev and test are always sentences."""

    min_phrase: int = 4
    """Minimum number of words in a training phrase, as in the paper; sentences may be shorter."""

    tokenizer: TokenizerName | None = None
    """Tokenizer of sentences without a tree; by default that of the biLM, or `moses`."""

    language: str | None = None
    """ISO 639-1 code of these sentences, for the rules of the tokenizer; by default that of the
    biLM, or `en`."""

    def __post_init__(self) -> None:
        check_ranges("data", self, at_least={"min_phrase": 1})
        choose_tokenization(None, self.tokenizer, self.language)  # rejects unknown languages


@dataclass(frozen=True, kw_only=True, slots=True)
class BCNConfig:
    """The biattentive classification network."""

    hidden: int = 300
    """Width of the feed-forward layer, and hidden size of each direction of the two biLSTMs."""

    classifier: Literal["relu", "maxout"] = "relu"
    """ReLU layers as in Peters et al. (2018), or batch norm and maxout as in McCann et al."""

    pieces: int = 4
    """Linear pieces of a maxout unit."""

    dropout: float = 0.25
    """Dropout on the feed-forward layer, and on the input of the classifier layers."""

    def __post_init__(self) -> None:
        check_ranges("network", self, at_least={"hidden": 1, "pieces": 1}, below_one=("dropout",))


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
