"""What a file of vectors holds.

J layers, W words, D dim.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Dtype = Literal["float32", "float16"]


class VectorRow(NamedTuple):
    """One sentence: the number of its line, its tokens, its vectors (J, W, D) or (W, D)."""

    id: int
    tokens: list[str]
    vectors: Float[np.ndarray, "..."]


class VectorForm(NamedTuple):
    """What all rows of a file have in common. No layers means that rows are (W, D)."""

    num_layers: int | None
    dim: int
    dtype: Dtype
