"""Attention that ignores padding.

B sentences, Q queries, K keys, D dim.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "*shape K"], mask: Bool[Tensor, "*#shape K"]
) -> Float[Tensor, "*shape K"]:
    """Return softmax weights over the positions where the mask is true, or zeros if none is."""
    lowest = torch.finfo(scores.dtype).min
    # Not -inf, which would turn a row without words into NaN. Multiplying makes such a row zero.
    return scores.masked_fill(~mask, lowest).softmax(dim=-1) * mask


def weighted_mean(
    scores: Float[Tensor, "B Q K"], mask: Bool[Tensor, "#B #Q K"], values: Float[Tensor, "B K D"]
) -> Float[Tensor, "B Q D"]:
    """Return the mean of the values, weighted by the masked softmax of the scores."""
    return masked_softmax(scores, mask) @ values


def dot_attention(
    queries: Float[Tensor, "B Q D"], keys: Float[Tensor, "B K D"], mask: Bool[Tensor, "B K"]
) -> Float[Tensor, "B Q D"]:
    """Return for each query the mean of the keys, weighted by softmax(q . k)."""
    return weighted_mean(queries @ keys.mT, mask[:, None], keys)
