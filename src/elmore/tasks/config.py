"""What all tasks have in common, as data: words, ELMo, training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from elmore.embedder import Precision
from elmore.errors import InputError


def check_settings(
    section: str, settings: object, *, positive: Sequence[str] = (), shares: Sequence[str] = ()
) -> None:
    """Refuse settings out of range: numbers from 1 on, and shares in [0, 1)."""
    for name in positive:
        if not getattr(settings, name) >= 1:
            raise InputError(f"{section}.{name} must be at least 1, got {getattr(settings, name)}")
    for name in shares:
        if not 0 <= getattr(settings, name) < 1:
            raise InputError(f"{section}.{name} must lie in [0, 1), got {getattr(settings, name)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsConfig:
    """What a word is to a task, besides ELMo."""

    vectors: str | None = None
    """File of word vectors: GloVe or word2vec, text or binary, or npz. None learns all of them."""

    dim: int = 100
    """Width of a word's vector where there is no file."""

    train: bool = False
    """Go on learning the vectors of the file."""

    min_count: int = 2
    """Words of the training text that have no vector get one if they occur so often."""

    char_dim: int = 16
    """Width of a character of the task's own character CNN."""

    char_width: int = 3
    """Characters that a filter of it sees."""

    char_filters: int = 0
    """Its filters; 0 for no such CNN."""

    dropout: float = 0.5
    """On word vectors and the character CNN."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElmoConfig:
    """Where and how ELMo enters a task (sections 3.3 and 5.1)."""

    model: str = "en"
    """The biLM: a folder, or the name of a model that ships with elmore."""

    precision: Precision = "fp32"
    """Of its products: bf16 and int8 are faster, and cost tasks nothing that was seen."""

    finetune: bool = False
    """Let its language model go on learning on the task's text first (section 3.4)."""

    place: Literal["none", "input", "output", "both"] = "input"
    """Of the task's RNN; `none` is the baseline."""

    layers: Literal["learned", "top", "average"] = "learned"
    """The mix of the biLM's layers."""

    penalty: float = 0.001
    """Lambda: pulls the learned mix to an average."""

    layer_norm: bool = False
    """Normalize each layer before they are mixed."""

    dropout: float = 0.5
    """On ELMo vectors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FitConfig:
    """How the weights of a task are learned."""

    epochs: int = 50
    """At most so many."""

    batch_size: int = 32
    """Examples of a step."""

    optimizer: Literal["adam", "adadelta"] = "adam"
    """Adam, or Adadelta where the literature has it."""

    lr: float = 1e-3
    """Learning rate, at its highest."""

    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of Adam's moments."""

    weight_decay: float = 0.0
    """Decoupled, on matrices."""

    clip_norm: float = 5.0
    """Bound on the norm of all gradients together."""

    lr_decay: float = 0.5
    """Factor of the learning rate after `lr_patience` epochs without a better score."""

    lr_patience: int = 1_000_000
    """By default the rate stays."""

    average: float = 0.0
    """Decay of a moving average of the weights, which is what is scored and kept; 0 for none.

    After n steps it is no more than n / (n + 9).
    """

    patience: int = 10
    """Epochs without a better score after which training ends."""

    seed: int = 0
    """Decides the first weights, the order of the examples and dropout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """A run of a task. Each task adds its model, and has defaults of its own."""

    words: WordsConfig = field(default_factory=WordsConfig)
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    training: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        for section, name, least in (
            ("training", "epochs", 1),
            ("training", "batch_size", 1),
            ("training", "patience", 1),
            ("training", "lr_patience", 1),
            ("training", "seed", 0),
            ("training", "weight_decay", 0),
            ("words", "dim", 1),
            ("words", "min_count", 1),
            ("words", "char_dim", 1),
            ("words", "char_width", 1),
            ("words", "char_filters", 0),
            ("elmo", "penalty", 0),
        ):
            value = getattr(getattr(self, section), name)
            if not value >= least:
                raise InputError(f"{section}.{name} must be at least {least}, got {value}")
        for name in ("lr", "clip_norm", "lr_decay"):
            if not 0 < getattr(self.training, name) < math.inf:
                raise InputError(
                    f"training.{name} must be positive, got {getattr(self.training, name)}"
                )
        check_settings("training", self.training, shares=("average",))
        check_settings("words", self.words, shares=("dropout",))
        check_settings("elmo", self.elmo, shares=("dropout",))
