"""Pairs of words in context, and the similarity of their vectors.

J layers, N pairs, D dim.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from elmore.analysis.neighbors import Occurrence, unit
from elmore.analysis.results import layer_rows
from elmore.embedder import Embedder
from elmore.progress import with_progress

_DECIMALS = 6  # differences beyond are rounding errors


class WordPair(NamedTuple):
    """Two words, each in a context of its own."""

    first: Occurrence
    second: Occurrence


def pair_similarities(
    embedder: Embedder, pairs: Iterable[WordPair]
) -> dict[str, Float[np.ndarray, " N"]]:
    """Return the similarities of all pairs, by several measures.

    `layer 0`, `layer 1`, ... are the cosines of the vectors of a layer, `mean of cosines` is the
    mean of these, and `averaged layers` is the cosine of the vectors averaged over the layers. In
    that average, a layer with longer vectors has more influence.
    """
    words = [word for pair in pairs for word in pair]
    stream = embedder.stream([word.tokens for word in words])
    shown = with_progress(stream, "contexts embedded", len(words))
    # A copy, so that the rest of the sentence can be freed.
    vectors = np.stack(
        [layers[:, word.position].copy() for word, (_, layers) in zip(words, shown, strict=True)]
    )  # (2N, J, D)
    cosines = _cosines(vectors)  # (N, J)
    similarities = dict(zip(layer_rows(embedder.num_layers), cosines.T, strict=True))
    similarities["mean of cosines"] = cosines.mean(axis=1)
    similarities["averaged layers"] = _cosines(vectors.mean(axis=1))
    return {name: values.round(_DECIMALS) for name, values in similarities.items()}


def _cosines(vectors: Float32[np.ndarray, "2*N ... D"]) -> Float[np.ndarray, "N ..."]:
    """Return the cosines of vectors 0 and 1, 2 and 3, ..."""
    normalized = unit(vectors)
    return (normalized[::2] * normalized[1::2]).sum(axis=-1)
