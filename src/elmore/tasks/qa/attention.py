"""Attention of a passage to a question, and to itself (Seo et al., 2017; Clark and Gardner, 2018).

B examples, T and U words, D dim.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.tasks.modules.attention import masked_softmax


class Trilinear(nn.Module):
    """How much a word is about another: a_ij = w1 . x_i + w2 . y_j + w3 . (x_i * y_j)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.left = nn.Linear(dim, 1)
        self.right = nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.empty(dim).uniform_(-(dim**-0.5), dim**-0.5))

    def forward(
        self, x: Float[Tensor, "B T D"], y: Float[Tensor, "B U D"]
    ) -> Float[Tensor, "B T U"]:
        """Score all pairs of words."""
        return self.left(x) + self.right(y).mT + (x * self.both) @ y.mT


class BiAttention(nn.Module):
    """Words of a passage, beside what the question has to say to each of them."""

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
        """Return [h_i; c_i; h_i * c_i; q * c_i], c_i of the question, q of the whole passage."""
        scores = self.score(passage, question)  # (B, T, U)
        asked = attend(scores, question_mask[:, None], question)  # (B, T, D)
        lowest = torch.finfo(scores.dtype).min
        strongest = scores.masked_fill(~question_mask[:, None], lowest).amax(dim=-1)  # (B, T)
        summary = attend(strongest[:, None], passage_mask[:, None], passage)  # (B, 1, D)
        return torch.cat([passage, asked, passage * asked, summary * asked], dim=-1)


class SelfAttention(nn.Module):
    """Words of a passage, beside what the other words of it have to say to each of them."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = Trilinear(dim)
        self.dim = 3 * dim

    def forward(
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T 3*D"]:
        """Return [x_i; c_i; x_i * c_i], where c_i is of all words but i."""
        others = ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        heard = attend(self.score(x, x), mask[:, None] & others, x)
        return torch.cat([x, heard, x * heard], dim=-1)


def attend(
    scores: Float[Tensor, "B T U"], allowed: Bool[Tensor, "#B #T U"], values: Float[Tensor, "B U D"]
) -> Float[Tensor, "B T D"]:
    """Return the mean of the values, weighted by exp(score); zeros where none is allowed."""
    return masked_softmax(scores, allowed) @ values
