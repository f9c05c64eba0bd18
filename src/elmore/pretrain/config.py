"""A pre-training run, as data."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from elmore.bilm.config import BiLMConfig
from elmore.errors import InputError
from elmore.text.corpus import TextConfig
from elmore.training.optim import OptimizerName
from elmore.training.settings import read_settings

NEVER = 1_000_000
"""A patience that no run exhausts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularyConfig:
    """The words that the language model predicts. What it reads has no vocabulary."""

    max_size: int = 200_000
    """At most so many words, the most frequent ones."""

    min_count: int = 2
    """Words that are rarer are predicted as `<UNK>`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """How the weights are learned."""

    epochs: float = 1.0
    """Times that the text is read."""

    streams: int = 256
    """Rows of a batch, each a text of its own (B)."""

    window: int = 20
    """Tokens before the gradient is cut (T)."""

    carry_state: bool = False
    """Let the state go on from sentence to sentence, as the released training code does."""

    negatives: int = 8192
    """Words of the sampled softmax; 0 for the full one."""

    optimizer: OptimizerName = "adamw"
    """`adamw`, or `adagrad` as in the released training code."""

    lr: float = 2e-3
    """Learning rate, at its highest."""

    schedule: Literal["linear", "constant"] = "linear"
    """`linear` falls to zero at the end of the run."""

    warmup: float = 0.02
    """Share of the run in which the learning rate rises to its highest."""

    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of the moments of AdamW."""

    weight_decay: float = 0.05
    """Of AdamW, on matrices."""

    loss_scale: float = 1.0
    """Factor of the loss before its gradient is taken; in the released code the window's length."""

    clip_norm: float = 0.5
    """Bound on the norm of all gradients together."""

    accumulate: int = 1
    """Parts that the rows of a batch are computed in, to save memory."""

    seed: int = 0
    """Decides the first weights, the order of the text, dropout and the sampled words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """What a run does besides learning."""

    heldout: float = 0.001
    """Share of the sentences that are kept aside, if no held-out text is named."""

    max_heldout: int = 2000
    """At most so many held-out sentences are scored on the way; at the end all are."""

    evaluations: int = 10
    """How often perplexity is measured in a run."""

    patience: int = NEVER
    """Evaluations without a better perplexity after which a run ends, with its best weights."""

    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints."""

    log_steps: int = 100
    """Steps between two lines of metrics.jsonl."""

    tensorboard: bool = False
    """Write the metrics for TensorBoard too, an extra."""


_AT_LEAST = (
    ("vocabulary", "max_size", 4),
    ("vocabulary", "min_count", 1),
    ("training", "streams", 1),
    ("training", "window", 1),
    ("training", "accumulate", 1),
    ("training", "negatives", 0),
    ("training", "weight_decay", 0),
    ("training", "seed", 0),
    ("run", "max_heldout", 1),
    ("run", "evaluations", 1),
    ("run", "patience", 1),
    ("run", "checkpoint_minutes", 0),
    ("run", "log_steps", 1),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig:
    """A run: a model, a text, a way to learn."""

    bilm: BiLMConfig = field(default_factory=BiLMConfig.medium)
    text: TextConfig = field(default_factory=TextConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        t = self.training
        for section, name, least in _AT_LEAST:
            value = getattr(getattr(self, section), name)
            if not value >= least:
                raise InputError(f"{section}.{name} must be at least {least}, got {value}")
        for name in ("epochs", "lr", "clip_norm", "loss_scale"):
            if not 0 < getattr(t, name) < math.inf:
                raise InputError(f"training.{name} must be positive, got {getattr(t, name)}")
        if not all(0 <= beta < 1 for beta in t.betas):
            raise InputError(f"training.betas must lie in [0, 1), got {t.betas}")
        if t.streams % t.accumulate:
            raise InputError(
                f"training.streams ({t.streams}) must be a multiple of training.accumulate "
                f"({t.accumulate})"
            )
        if not 0 <= t.warmup < 1:
            raise InputError(f"training.warmup must lie in [0, 1), got {t.warmup}")
        if not 0 <= self.run.heldout < 0.5:
            raise InputError(f"run.heldout must lie in [0, 0.5), got {self.run.heldout}")
        if self.bilm.vocab_size is not None:
            raise InputError("pre-training makes models that read characters: leave out vocab_size")


def read_config(
    recipe: Path | None = None,
    *,
    size: Literal["tiny", "small", "medium", "original"] | None = None,
    changes: Sequence[str] = (),
) -> PretrainConfig:
    """Return the settings of a run: a recipe, a size of the model, and changes on top of them."""
    if size is None and recipe is None:
        size = "medium"
    sizes = {} if size is None else {"bilm": asdict(getattr(BiLMConfig, size)())}
    return read_settings(PretrainConfig, recipe, changes, sections=sizes)
