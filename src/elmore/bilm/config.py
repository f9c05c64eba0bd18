"""Architecture and sizes of a biLM."""

from dataclasses import dataclass
from typing import Annotated, Literal

from elmore.errors import InputError
from elmore.schema import POSITIVE, at_least, at_most, below, check_settings

Activation = Literal["relu", "tanh"]

# Upper bounds reject a damaged file before memory is allocated.
_MAX_DIM, _MAX_LAYERS = 2**16, 100
_Size = Annotated[int, at_least(1), at_most(_MAX_DIM)]
_Clip = Annotated[float | None, POSITIVE, at_most(10**6)]


@dataclass(frozen=True, kw_only=True, slots=True)
class BiLMConfig:
    """Sizes of a biLM. The defaults are the paper's (section 3.4)."""

    vocab_size: Annotated[int | None, at_least(3), at_most(10**8)] = None
    """Vocabulary size of a word-input model, with `<S>`, `</S>` and `<UNK>`; None for a model that
    reads characters."""

    max_characters: Annotated[int, at_least(3), at_most(10_000)] = 50
    """Character ids per word, including the begin- and end-of-word markers (C)."""

    char_dim: _Size = 16
    """Width of one character embedding (E)."""

    filters: tuple[tuple[int, int], ...] = (
        (1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024),
    )  # fmt: skip
    """(width, count) of each group of convolution filters; the counts sum to 2048 (F)."""

    activation: Activation = "relu"
    """Activation function after max-pooling."""

    num_highways: Annotated[int, at_least(0), at_most(_MAX_LAYERS)] = 2
    """Highway layers after the convolutions."""

    project_filters: bool = True
    """Project the filter outputs to `dim`. If False, the filter counts must sum to `dim`."""

    dim: _Size = 512
    """Width of a token vector, and of each LSTM output (D)."""

    cell_dim: _Size = 4096
    """Width of the LSTM cell state (H)."""

    project_cells: bool = True
    """Project the hidden output from `cell_dim` to `dim`. If False, the two must be equal."""

    num_layers: Annotated[int, at_least(1), at_most(_MAX_LAYERS)] = 2
    """LSTM layers in each direction (L). The biLM returns L + 1 layers."""

    residual: bool = True
    """Add the input of each LSTM layer, except the first, to its output."""

    cell_clip: _Clip = 3.0
    """Clip the cell state to [-cell_clip, cell_clip]; None for no clipping."""

    projection_clip: _Clip = 3.0
    """Clip the projected output to [-projection_clip, projection_clip]; None for no clipping."""

    dropout: Annotated[float, below(1)] = 0.1
    """Dropout rate on the input of each LSTM layer and of the softmax, in training."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not 1 <= len(self.filters) <= _MAX_LAYERS or self.num_filters > _MAX_DIM:
            raise InputError(
                f"filters must be 1 to {_MAX_LAYERS} (width, count) pairs, with counts that sum to "
                f"{_MAX_DIM:,} at most"
            )
        for width, count in self.filters:
            if not (1 <= width <= self.max_characters and count >= 1):
                raise InputError(
                    f"filters must be pairs of a width from 1 to max_characters "
                    f"({self.max_characters}) and a count of at least 1, got ({width}, {count})"
                )
        if not self.project_cells and self.cell_dim != self.dim:
            raise InputError(
                f"without project_cells, cell_dim ({self.cell_dim}) must equal dim ({self.dim})"
            )
        if self.vocab_size is None and not self.project_filters and self.num_filters != self.dim:
            raise InputError(
                f"without project_filters, the filter counts must sum to dim ({self.dim}), "
                f"got {self.num_filters}"
            )

    @property
    def num_filters(self) -> int:
        """Total number of filters (F)."""
        return sum(count for _, count in self.filters)

    @classmethod
    def original(cls) -> "BiLMConfig":
        """Return the sizes of the paper's biLM, 93.6 M parameters."""
        return cls()

    @classmethod
    def medium(cls) -> "BiLMConfig":
        """Return the sizes of the released medium model, 28.0 M parameters."""
        return cls(cell_dim=2048, dim=256, num_highways=1)

    @classmethod
    def small(cls) -> "BiLMConfig":
        """Return the sizes of the released small model, 13.6 M parameters."""
        return cls(cell_dim=1024, dim=128, num_highways=1)

    @classmethod
    def tiny(cls) -> "BiLMConfig":
        """Return the sizes of a very small biLM, for tests and tutorials."""
        return cls(char_dim=4, filters=((1, 4), (2, 8), (3, 16)), dim=16, cell_dim=32)
