"""The architecture of a biLM, as data."""

from dataclasses import dataclass
from typing import Literal

from elmore.errors import InputError

Activation = Literal["relu", "tanh"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BiLMConfig:
    """Sizes of a biLM. The defaults are the paper's (section 3.4)."""

    vocab_size: int | None = None
    """Words of a word-input model's table; None for a model that reads characters."""

    max_characters: int = 50
    """Character ids per word, the two word markers included (C)."""

    char_dim: int = 16
    """Width of one character embedding (E)."""

    filters: tuple[tuple[int, int], ...] = (
        (1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024),
    )  # fmt: skip
    """(width, count) of each character n-gram filter; the counts sum to 2048 (F)."""

    activation: Activation = "relu"
    """Applied to the pooled filters."""

    num_highways: int = 2
    """Highway layers after the filters."""

    project_filters: bool = True
    """Project the filters to `dim`. Without it they must sum to `dim`."""

    dim: int = 512
    """Width of a token vector, and of each LSTM output (D)."""

    cell_dim: int = 4096
    """Width of an LSTM memory cell (H)."""

    project_cells: bool = True
    """Project the cell to `dim`. Without it `cell_dim` must equal `dim`."""

    num_layers: int = 2
    """LSTM layers in each direction (L). The biLM returns L + 1 layers."""

    residual: bool = True
    """Add the input of each LSTM layer but the first to its output."""

    cell_clip: float | None = 3.0
    """Bound on the values of the cell; None removes it."""

    projection_clip: float | None = 3.0
    """Bound on the projected output; None removes it."""

    dropout: float = 0.1
    """Dropout on the input of each LSTM layer, in training."""

    def __post_init__(self) -> None:
        for name in ("char_dim", "dim", "cell_dim", "num_layers"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.vocab_size is not None and self.vocab_size < 3:
            raise InputError(
                f"vocab_size must be at least 3 (<S>, </S>, <UNK>), got {self.vocab_size}"
            )
        if self.num_highways < 0:
            raise InputError(f"num_highways must not be negative, got {self.num_highways}")
        if self.max_characters < 3:
            raise InputError(
                "max_characters must be at least 3 (a byte between two word markers), "
                f"got {self.max_characters}"
            )
        if not self.filters:
            raise InputError("filters must hold at least one (width, count) pair")
        for width, count in self.filters:
            if not (1 <= width <= self.max_characters and count >= 1):
                raise InputError(
                    f"filters must be pairs of a width from 1 to max_characters "
                    f"({self.max_characters}) and a count of at least 1, got ({width}, {count})"
                )
        if self.activation not in ("relu", "tanh"):
            raise InputError(f"activation must be relu or tanh, got {self.activation!r}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}")
        for name in ("cell_clip", "projection_clip"):
            clip = getattr(self, name)
            if clip is not None and clip <= 0:
                raise InputError(f"{name} must be positive or None, got {clip}")
        if not self.project_cells and self.cell_dim != self.dim:
            raise InputError(
                f"without project_cells the cell is the output, so cell_dim ({self.cell_dim}) "
                f"must equal dim ({self.dim})"
            )
        if self.vocab_size is None and not self.project_filters and self.num_filters != self.dim:
            raise InputError(
                f"without project_filters the filters are the token vector, so their counts "
                f"({self.num_filters} in all) must sum to dim ({self.dim})"
            )

    @property
    def num_filters(self) -> int:
        """Width of the pooled filters (F)."""
        return sum(count for _, count in self.filters)

    @classmethod
    def original(cls) -> "BiLMConfig":
        """Return the paper's biLM, 93.6 M parameters."""
        return cls()

    @classmethod
    def medium(cls) -> "BiLMConfig":
        """Return the released medium model, 28.0 M parameters."""
        return cls(cell_dim=2048, dim=256, num_highways=1)

    @classmethod
    def small(cls) -> "BiLMConfig":
        """Return the released small model, 13.6 M parameters."""
        return cls(cell_dim=1024, dim=128, num_highways=1)

    @classmethod
    def tiny(cls) -> "BiLMConfig":
        """Return a biLM that runs in moments on any computer, for tests and tutorials."""
        return cls(char_dim=4, filters=((1, 4), (2, 8), (3, 16)), dim=16, cell_dim=32)
