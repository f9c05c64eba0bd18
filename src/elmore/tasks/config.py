"""Settings that all tasks share: words, ELMo, training."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from elmore.embedder import Precision
from elmore.schema import POSITIVE, at_least, at_most, below, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsConfig:
    """Word vectors and the character CNN of a task."""

    vectors: str | None = None
    """File of pretrained word vectors: GloVe or word2vec, text or binary, or npz. Without it, all
    word vectors are learned."""

    dim: Annotated[int, at_least(1), at_most(10_000)] = 100
    """Dimension of the word vectors if there is no file."""

    train: bool = False
    """Fine-tune the vectors of words that occur in the training data."""

    min_count: Annotated[int, at_least(1)] = 2
    """Words that are not in the file get a trained vector if they occur at least this often in the
    distinct sentences of the training data."""

    char_dim: Annotated[int, at_least(1), at_most(10_000)] = 16
    """Dimension of the character embeddings of the task's character CNN."""

    char_width: Annotated[int, at_least(1), at_most(32)] = 3
    """Width of its filters, in characters."""

    char_filters: Annotated[int, at_least(0), at_most(10_000)] = 0
    """Number of its filters; 0 for no character CNN."""

    dropout: Annotated[float, below(1)] = 0.5
    """Dropout on word vectors and character CNN."""

    def __post_init__(self) -> None:
        check_settings(self, "words")


@dataclass(frozen=True, kw_only=True, slots=True)
class ElmoConfig:
    """How a task uses ELMo (sections 3.3 and 5.1)."""

    model: str = "en"
    """The biLM: the name of an installed model, or a folder; or the folder of a transformer."""

    precision: Precision = "fp32"
    """Precision of the biLM; bf16 and int8 are faster and had no measurable effect on scores."""

    finetune: bool = False
    """Fine-tune the biLM on the task's training text first (section 3.4)."""

    place: Literal["none", "input", "output", "both"] = "input"
    """Where ELMo enters: at the input of the task's RNN, at its output, or both; `none` is the
    baseline."""

    layers: Literal["learned", "top", "average"] = "learned"
    """How the layers of the biLM are mixed."""

    penalty: Annotated[float, at_least(0)] = 0.001
    """Lambda, the strength of the regularization that pulls a learned mix toward the average."""

    layer_norm: bool = False
    """Apply layer normalization to each layer before mixing."""

    dropout: Annotated[float, below(1)] = 0.5
    """Dropout on ELMo vectors."""

    def __post_init__(self) -> None:
        check_settings(self, "elmo")


@dataclass(frozen=True, kw_only=True, slots=True)
class FitConfig:
    """Optimizer, learning-rate schedule and early stopping."""

    epochs: Annotated[int, at_least(1)] = 50
    """Maximum number of epochs."""

    batch_size: Annotated[int, at_least(1)] = 32
    """Examples per step."""

    optimizer: Literal["adam", "adadelta"] = "adam"
    """`adam` with decoupled weight decay (AdamW), or `adadelta`."""

    lr: Annotated[float, POSITIVE] = 1e-3
    """Initial learning rate."""

    betas: Annotated[tuple[float, float], below(1)] = (0.9, 0.999)
    """Moment decay rates of Adam."""

    weight_decay: Annotated[float, at_least(0)] = 0.0
    """Weight decay; Adam applies it to matrices only."""

    clip_norm: Annotated[float, POSITIVE] = 5.0
    """Maximum norm of the gradient."""

    lr_decay: Annotated[float, POSITIVE] = 0.5
    """Factor on the learning rate after `lr_patience` epochs without improvement."""

    lr_patience: Annotated[int, at_least(1)] = 1_000_000
    """Epochs without improvement before the learning rate decays; by default it never does."""

    average: Annotated[float, below(1)] = 0.0
    """Decay of an exponential moving average of the weights, which is evaluated and saved.

    0 turns it off. After n steps the decay is at most n / (n + 9).
    """

    patience: Annotated[int, at_least(1)] = 10
    """Early stopping: stop after this many epochs without improvement on the dev set."""

    seed: Annotated[int, at_least(0), at_most(2**63 - 1)] = 0
    """Seed of the initial weights, the order of the examples and dropout."""

    def __post_init__(self) -> None:
        check_settings(self, "training")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """Settings of a task. Each task adds a section for its model and has its own defaults."""

    words: WordsConfig = field(default_factory=WordsConfig)
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    training: FitConfig = field(default_factory=FitConfig)
