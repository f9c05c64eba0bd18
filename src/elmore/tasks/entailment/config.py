"""Entailment: settings, after Chen et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field
from typing import Literal

from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig, check_settings
from elmore.text.tokenize import TokenizerName


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsConfig:
    """How pairs of sentences are read and weighted."""

    tokenizer: TokenizerName = "moses"
    """For sentences that come without a parse; whitespace where spaces are all there is to it."""

    class_weights: Literal["none", "balanced"] = "none"
    """`balanced` gives each class the same weight in the loss, however rare it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ESIMConfig:
    """The enhanced LSTM."""

    hidden: int = 300
    """Width of each direction of the two biLSTMs, and of the feed-forward layers."""

    # Deviation: half of everything is dropped in the paper, with word vectors of 300 dimensions;
    # of 100 that leaves too little to learn from.
    rnn_dropout: float = 0.25
    """On the input of the biLSTMs, the same dimensions at every word."""

    dropout: float = 0.25
    """On the input of the last two layers."""

    attention_dropout: float = 0.25
    """On what the attention has found, which the paper adds for ELMo."""

    def __post_init__(self) -> None:
        check_settings(
            "network",
            self,
            positive=("hidden",),
            shares=("rnn_dropout", "dropout", "attention_dropout"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EntailmentConfig(TaskConfig):
    """A run of textual entailment."""

    # The biLSTM's own dropout is on all of its input.
    words: WordsConfig = field(default_factory=lambda: WordsConfig(train=True, dropout=0.0))
    elmo: ElmoConfig = field(
        default_factory=lambda: ElmoConfig(
            place="both", penalty=0.001, layer_norm=True, dropout=0.25
        )
    )
    training: FitConfig = field(
        default_factory=lambda: FitConfig(
            epochs=75, batch_size=32, lr=4e-4, lr_patience=2, weight_decay=0.01, patience=6
        )
    )
    data: PairsConfig = field(default_factory=PairsConfig)
    network: ESIMConfig = field(default_factory=ESIMConfig)
