"""Settings of a pre-training run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from elmore.bilm.config import BiLMConfig
from elmore.errors import InputError
from elmore.schema import POSITIVE, at_least, at_most, below, check_settings
from elmore.text.corpus import TextConfig
from elmore.training.settings import read_settings

_MAX_BATCH_TOKENS = 10**7


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularyConfig:
    """The words that the language model predicts. Its input is not limited to them."""

    max_size: Annotated[int, at_least(4), at_most(10**8)] = 200_000
    """Maximum number of words; the most frequent ones are kept."""

    min_count: Annotated[int, at_least(1)] = 2
    """Rarer words are predicted as `<UNK>`."""

    def __post_init__(self) -> None:
        check_settings(self, "vocabulary")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """Optimizer, learning-rate schedule and batches."""

    epochs: Annotated[float, POSITIVE, at_most(10**6)] = 1.0
    """Passes over the text."""

    streams: Annotated[int, at_least(1), at_most(10**6)] = 256
    """Rows of a batch (B); each row reads its own sequence of sentences."""

    window: Annotated[int, at_least(1), at_most(10**4)] = 20
    """Tokens per row and step (T): the length of truncated back-propagation."""

    carry_state: bool = False
    """Carry the LSTM state from sentence to sentence, as the released training code does."""

    negatives: Annotated[int, at_least(0), at_most(10**7)] = 8192
    """Negative samples of the sampled softmax; 0 for the full softmax."""

    optimizer: Literal["adamw", "muon", "adagrad"] = "adamw"
    """`adamw`; `muon`, which learns faster from large batches; or `adagrad` as in the released
    training code."""

    lr: Annotated[float, POSITIVE] = 2e-3
    """Peak learning rate."""

    schedule: Literal["linear", "constant"] = "linear"
    """Learning-rate schedule after the warmup; `linear` decays to zero at the end of the run."""

    warmup: Annotated[float, below(1)] = 0.02
    """Share of the run in which the learning rate rises linearly from zero to its peak."""

    betas: Annotated[tuple[float, float], below(1)] = (0.9, 0.98)
    """Moment decay rates of AdamW."""

    weight_decay: Annotated[float, at_least(0)] = 0.05
    """Weight decay of AdamW, applied to matrices."""

    loss_scale: Annotated[float, POSITIVE] = 1.0
    """Factor on the loss before back-propagation; the released code uses the window length."""

    clip_norm: Annotated[float, POSITIVE] = 0.5
    """Maximum norm of the gradient."""

    accumulate: Annotated[int, at_least(1)] = 1
    """Gradient accumulation: compute each batch in this many parts, to save memory."""

    seed: Annotated[int, at_least(0), at_most(2**63 - 1)] = 0
    """Seed of the initial weights, the order of the text, dropout and negative samples."""

    def __post_init__(self) -> None:
        check_settings(self, "training")
        if self.streams * self.window > _MAX_BATCH_TOKENS:
            raise InputError(
                f"training.streams ({self.streams}) times training.window ({self.window}) must be "
                f"at most {_MAX_BATCH_TOKENS:,}"
            )
        if self.streams % self.accumulate:
            raise InputError(
                f"training.streams ({self.streams}) must be a multiple of training.accumulate "
                f"({self.accumulate})"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Evaluation, early stopping, checkpoints and logging."""

    heldout: Annotated[float, below(0.5)] = 0.001
    """Share of the sentences to hold out, if no held-out text is given."""

    max_heldout: Annotated[int, at_least(1)] = 2000
    """Maximum number of sentences that `heldout` holds out. If held-out text is given, evaluations
    use up to this many of its sentences, and the final evaluation uses all of them."""

    evaluations: Annotated[int, at_least(1)] = 10
    """Number of times perplexity is measured during a run."""

    patience: Annotated[int | None, at_least(1)] = None
    """Early stopping: stop after this many evaluations without a lower perplexity, and keep the
    best weights. `none` turns it off."""

    checkpoint_minutes: Annotated[float, at_least(0)] = 5.0
    """Minutes between checkpoints."""

    log_steps: Annotated[int, at_least(1)] = 100
    """Steps between lines of metrics.jsonl."""

    tensorboard: bool = False
    """Also write the metrics for TensorBoard, which is an optional package."""

    def __post_init__(self) -> None:
        check_settings(self, "run")


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainConfig:
    """All settings of a pre-training run."""

    bilm: BiLMConfig = field(default_factory=BiLMConfig.medium)
    text: TextConfig = field(default_factory=TextConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if self.bilm.vocab_size is not None:
            raise InputError(
                "only biLMs with character input can be trained; this one reads words, because "
                "vocab_size is set"
            )


def read_config(
    recipe: Path | None = None,
    *,
    size: Literal["tiny", "small", "medium", "original"] | None = None,
    changes: Sequence[str] = (),
) -> PretrainConfig:
    """Return the settings of a run.

    Args:
        recipe: TOML file with settings.
        size: Size of the model, which replaces the recipe's; `medium` without a recipe.
        changes: Settings on top of that, such as `training.lr=1e-3`.
    """
    if size is None and recipe is None:
        size = "medium"
    sizes = {} if size is None else {"bilm": asdict(getattr(BiLMConfig, size)())}
    return read_settings(PretrainConfig, recipe, changes, sections=sizes)
