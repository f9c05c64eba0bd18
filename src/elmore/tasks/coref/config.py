"""Coreference: settings, after Lee et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field

from elmore.errors import InputError
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class RankerConfig:
    """The span-ranking model."""

    hidden: int = 200
    """Width of each direction of the biLSTM."""

    rnn_dropout: float = 0.4
    """On its output."""

    ffnn_hidden: int = 150
    """Width of the feed-forward networks."""

    ffnn_layers: int = 2
    """Hidden layers of each."""

    dropout: float = 0.2
    """In their hidden layers, and on the embeddings of features."""

    feature_dim: int = 20
    """Of a span's width, and of distance, genre and speaker of a pair."""

    max_width: int = 10
    """Words of the longest span that may be a mention."""

    spans_per_word: float = 0.4
    """So many spans of a document are kept for each of its words (lambda)."""

    max_antecedents: int = 250
    """So many kept spans before a span may be its antecedent (the cited model: 250)."""

    max_sentences: int = 50
    """Longer documents are cut into parts for training; answers see all of a document."""

    def __post_init__(self) -> None:
        check_settings(
            "ranker",
            self,
            positive=(
                "hidden",
                "ffnn_hidden",
                "ffnn_layers",
                "feature_dim",
                "max_width",
                "max_antecedents",
                "max_sentences",
            ),
            shares=("rnn_dropout", "dropout"),
        )
        if not self.spans_per_word > 0:
            raise InputError(f"ranker.spans_per_word must be positive, got {self.spans_per_word}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CorefConfig(TaskConfig):
    """A run of coreference resolution."""

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
