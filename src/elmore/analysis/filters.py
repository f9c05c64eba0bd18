"""Which character filters of the token layer fire for a word, and where (section 3.4).

C characters, F filters of a width, E character dim.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from elmore.bilm.token_encoder import CharEncoder


class FilterMatch(NamedTuple):
    """A filter at the position where its activation is largest."""

    filter: int
    activation: float
    start: int
    """Index of the first character id that it saw; the filter is `width` ids wide."""


class FilterGroup(NamedTuple):
    """All filters of one width."""

    width: int
    filters: int
    fired: int
    """Filters with a positive activation."""

    strongest: list[FilterMatch]


@torch.no_grad()
def match_filters(encoder: CharEncoder, ids: Int[Tensor, " C"], *, k: int = 5) -> list[FilterGroup]:
    """Return the activations of a word's filters after max-pooling, by filter width.

    Args:
        encoder: The token layer of a biLM.
        ids: The character ids of one word.
        k: Number of filters to return per width, strongest first.
    """
    characters = encoder.embed(ids).T[None]  # (1, E, C)
    groups = []
    for conv in encoder.convs:
        assert isinstance(conv, nn.Conv1d)
        pooled, starts = encoder.activation(conv(characters)[0]).max(dim=-1)  # (F,)
        best = pooled.argsort(descending=True, stable=True)[:k].tolist()
        matches = [FilterMatch(i, pooled[i].item(), int(starts[i])) for i in best]
        groups.append(
            FilterGroup(conv.kernel_size[0], len(pooled), int((pooled > 0).sum()), matches)
        )
    return groups
