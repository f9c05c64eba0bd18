"""Settings that all tasks share: words, ELMo, training."""

from dataclasses import dataclass, field
from typing import Literal

from elmore.embedder import Precision
from elmore.schema import check_ranges
from elmore.text.tokenize import TokenizerName, choose_tokenization


@dataclass(frozen=True, kw_only=True, slots=True)
class WordsConfig:
    """Word vectors and the character CNN of a task."""

    vectors: str | None = None
    """File of pretrained word vectors: GloVe or word2vec, text or binary, or npz. Without it, all
    word vectors are learned."""

    dim: int = 100
    """Dimension of the word vectors if there is no file."""

    train: bool = False
    """Fine-tune the vectors of words that occur in the training data."""

    min_count: int = 2
    """Words that are not in the file get a trained vector if they occur at least this often in the
    distinct sentences of the training data."""

    char_dim: int = 16
    """Dimension of the character embeddings of the task's character CNN."""

    char_width: int = 3
    """Width of its filters, in characters."""

    char_filters: int = 0
    """Number of its filters; 0 for no character CNN."""

    dropout: float = 0.5
    """Dropout on word vectors and character CNN."""

    def __post_init__(self) -> None:
        check_ranges(
            "words",
            self,
            at_least={
                "dim": 1,
                "min_count": 1,
                "char_dim": 1,
                "char_width": 1,
                "char_filters": 0,
            },
            at_most={"dim": 10_000, "char_dim": 10_000, "char_width": 32, "char_filters": 10_000},
            below_one=("dropout",),
        )


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

    penalty: float = 0.001
    """Lambda, the strength of the regularization that pulls a learned mix toward the average."""

    layer_norm: bool = False
    """Apply layer normalization to each layer before mixing."""

    dropout: float = 0.5
    """Dropout on ELMo vectors."""

    def __post_init__(self) -> None:
        check_ranges("elmo", self, at_least={"penalty": 0}, below_one=("dropout",))


@dataclass(frozen=True, kw_only=True, slots=True)
class FitConfig:
    """Optimizer, learning-rate schedule and early stopping."""

    epochs: int = 50
    """Maximum number of epochs."""

    batch_size: int = 32
    """Examples per step."""

    optimizer: Literal["adam", "adadelta"] = "adam"
    """`adam` with decoupled weight decay (AdamW), or `adadelta`."""

    lr: float = 1e-3
    """Initial learning rate."""

    betas: tuple[float, float] = (0.9, 0.999)
    """Moment decay rates of Adam."""

    weight_decay: float = 0.0
    """Weight decay; Adam applies it to matrices only."""

    clip_norm: float = 5.0
    """Maximum norm of the gradient."""

    lr_decay: float = 0.5
    """Factor on the learning rate after `lr_patience` epochs without improvement."""

    lr_patience: int = 1_000_000
    """Epochs without improvement before the learning rate decays; by default it never does."""

    average: float = 0.0
    """Decay of an exponential moving average of the weights, which is evaluated and saved.

    0 turns it off. After n steps the decay is at most n / (n + 9).
    """

    patience: int = 10
    """Early stopping: stop after this many epochs without improvement on the dev set."""

    seed: int = 0
    """Seed of the initial weights, the order of the examples and dropout."""

    def __post_init__(self) -> None:
        check_ranges(
            "training",
            self,
            at_least={
                "epochs": 1,
                "batch_size": 1,
                "patience": 1,
                "lr_patience": 1,
                "seed": 0,
                "weight_decay": 0,
            },
            positive=("lr", "clip_norm", "lr_decay"),
            below_one=("betas", "average"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """Tokenization of raw text."""

    tokenizer: TokenizerName | None = None
    """Tokenizer of raw text; by default that of the biLM, or `moses`."""

    language: str | None = None
    """ISO 639-1 code of raw text, for the rules of the tokenizer; by default that of the biLM, or
    `en`."""

    def __post_init__(self) -> None:
        choose_tokenization(None, self.tokenizer, self.language)  # rejects unknown languages


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """Settings of a task. Each task adds a section for its model and has its own defaults."""

    words: WordsConfig = field(default_factory=WordsConfig)
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    training: FitConfig = field(default_factory=FitConfig)
