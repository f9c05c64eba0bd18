"""Pooling of the words of a sentence; mean and max pooling are in `elmore.mix`.

B sentences, T words, D dim.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.mix import max_pool
from elmore.tasks.modules.attention import masked_softmax


def min_pool(vectors: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """Take the minimum over the words of each sentence; a sentence without words is zero."""
    return -max_pool(-vectors, mask)


class AttentivePool(nn.Module):
    """The mean of the words x, weighted by softmax(v . x) with a learned v."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(
        self, vectors: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B D"]:
        """Pool the words of each sentence; a sentence without words is zero."""
        weights = masked_softmax(self.score(vectors)[..., 0], mask)  # (B, T)
        return (weights[:, None] @ vectors)[:, 0]
