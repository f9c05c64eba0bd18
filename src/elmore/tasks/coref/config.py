"""Settings of coreference resolution, after Lee et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field
from typing import Annotated

from elmore.schema import POSITIVE, at_least, below, check_settings
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RankerConfig:
    """The span-ranking model."""

    hidden: Annotated[int, at_least(1)] = 200
    """Hidden size of each direction of the biLSTM."""

    rnn_dropout: Annotated[float, below(1)] = 0.4
    """Dropout on the output of the biLSTM."""

    ffnn_hidden: Annotated[int, at_least(1)] = 150
    """Width of the feed-forward networks."""

    ffnn_layers: Annotated[int, at_least(1)] = 2
    """Hidden layers of each feed-forward network."""

    dropout: Annotated[float, below(1)] = 0.2
    """Dropout in the feed-forward networks and on feature embeddings."""

    feature_dim: Annotated[int, at_least(1)] = 20
    """Dimension of the feature embeddings: span width, distance, genre, speaker."""

    max_width: Annotated[int, at_least(1)] = 10
    """Maximum number of words in a mention."""

    spans_per_word: Annotated[float, POSITIVE] = 0.4
    """Spans that pruning keeps, per word of the document (lambda)."""

    max_antecedents: Annotated[int, at_least(1)] = 250
    """Maximum number of preceding spans that are considered as antecedents."""

    max_sentences: Annotated[int, at_least(1)] = 50
    """Longer documents are split for training; prediction uses whole documents."""

    def __post_init__(self) -> None:
        check_settings(self, "ranker")


@dataclass(frozen=True, kw_only=True, slots=True)
class CorefConfig(TaskConfig):
    """All settings of coreference resolution."""

    words: WordsConfig = field(
        default_factory=lambda: WordsConfig(char_dim=8, char_filters=150, dropout=0.5)
    )
    elmo: ElmoConfig = field(default_factory=lambda: ElmoConfig(place="input", penalty=0.001))
    training: FitConfig = field(
        default_factory=lambda: FitConfig(
            epochs=100, batch_size=1, lr=1e-3, lr_patience=3, patience=10
        )
    )
    ranker: RankerConfig = field(default_factory=RankerConfig)
