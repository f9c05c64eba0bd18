"""Attention that sees no padding.

B sentences, Q words that ask, K words that are asked, D dim.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "*shape K"], mask: Bool[Tensor, "*#shape K"]
) -> Float[Tensor, "*shape K"]:
    """Return weights that add up to 1 where the mask is true; zeros where it is true nowhere."""
    lowest = torch.finfo(scores.dtype).min
    # -inf would make a row without words NaN; so it is uniform first, and zero then.
    return scores.masked_fill(~mask, lowest).softmax(dim=-1) * mask


def attend(
    queries: Float[Tensor, "B Q D"], keys: Float[Tensor, "B K D"], mask: Bool[Tensor, "B K"]
) -> Float[Tensor, "B Q D"]:
    """Return for each query the keys, averaged by softmax(q . k)."""
    return masked_softmax(queries @ keys.mT, mask[:, None]) @ keys
