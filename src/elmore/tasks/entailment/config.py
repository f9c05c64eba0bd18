"""Settings of textual entailment, after Chen et al. (2017) and the paper's appendix."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from elmore.schema import at_least, below, check_settings
from elmore.tasks.config import ElmoConfig, FitConfig, TaskConfig, WordsConfig
from elmore.text.tokenize import TokenizerName, choose_tokenization


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsConfig:
    """Tokenization and class weights."""

    tokenizer: TokenizerName = "moses"
    """Tokenizer of sentences that come without a parse; `whitespace` if they are tokenized."""

    language: str | None = None
    """ISO 639-1 code of the sentences; selects the rules of the tokenizer. By default, that of the
    biLM's training text, or `en` if it is not known."""

    class_weights: Literal["none", "balanced"] = "none"
    """`balanced` weights the loss by inverse class frequency."""

    def __post_init__(self) -> None:
        choose_tokenization(None, self.tokenizer, self.language)  # rejects unknown languages


@dataclass(frozen=True, kw_only=True, slots=True)
class ESIMConfig:
    """The enhanced sequential inference model."""

    hidden: Annotated[int, at_least(1)] = 300
    """Hidden size of each direction of the two biLSTMs, and of the feed-forward layers."""

    # Deviation: the paper uses dropout 0.5 with 300-dimensional word vectors, which is too much for
    # 100 dimensions.
    rnn_dropout: Annotated[float, below(1)] = 0.25
    """Variational dropout on the input of the biLSTMs."""

    dropout: Annotated[float, below(1)] = 0.25
    """Dropout on the input of the last two layers."""

    attention_dropout: Annotated[float, below(1)] = 0.25
    """Dropout after the attention, which the paper adds for ELMo."""

    def __post_init__(self) -> None:
        check_settings(self, "network")


@dataclass(frozen=True, kw_only=True, slots=True)
class EntailmentConfig(TaskConfig):
    """All settings of textual entailment."""

    # No dropout: the network applies rnn_dropout to all of its input.
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
