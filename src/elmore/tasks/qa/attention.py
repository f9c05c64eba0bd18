"""Bidirectional attention and self-attention (Seo et al., 2017; Clark and Gardner, 2018).

B examples, T and U words, D dim.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.tasks.modules.attention import weighted_mean


class Trilinear(nn.Module):
    """Similarity of two words: a_ij = w1 . x_i + w2 . y_j + w3 . (x_i * y_j)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.left = nn.Linear(dim, 1)
        self.right = nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.empty(dim).uniform_(-(dim**-0.5), dim**-0.5))

    def forward(
        self, x: Float[Tensor, "B T D"], y: Float[Tensor, "B U D"]
    ) -> Float[Tensor, "B T U"]:
        """Return the similarity of all pairs of words."""
        return self.left(x) + self.right(y).mT + (x * self.both) @ y.mT


class BiAttention(nn.Module):
    """Attention between a passage and a question, in both directions."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = Trilinear(dim)
        self.dim = 4 * dim

    def forward(
        self,
        passage: Float[Tensor, "B T D"],
        question: Float[Tensor, "B U D"],
        passage_mask: Bool[Tensor, "B T"],
        question_mask: Bool[Tensor, "B U"],
    ) -> Float[Tensor, "B T 4*D"]:
        """Return [h_i; c_i; h_i * c_i; q * c_i] for each word i of the passage.

        c_i is the mean of the question, weighted by similarity to word i; q is the mean of the
        passage, weighted by the maximum similarity of each word to the question.
        """
        scores = self.score(passage, question)  # (B, T, U)
        context = weighted_mean(scores, question_mask[:, None], question)  # (B, T, D)
        lowest = torch.finfo(scores.dtype).min
        maxima = scores.masked_fill(~question_mask[:, None], lowest).amax(dim=-1)  # (B, T)
        summary = weighted_mean(maxima[:, None], passage_mask[:, None], passage)  # (B, 1, D)
        return torch.cat([passage, context, passage * context, summary * context], dim=-1)


class SelfAttention(nn.Module):
    """Attention of a passage to itself."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = Trilinear(dim)
        self.dim = 3 * dim

    def forward(
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T 3*D"]:
        """Return [x_i; c_i; x_i * c_i]; c_i is the weighted mean of all words except i."""
        others = ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        context = weighted_mean(self.score(x, x), mask[:, None] & others, x)
        return torch.cat([x, context, x * context], dim=-1)
