"""Spans of a document: candidates, pruning, antecedents and clusters.

N words of a document, S candidate spans, K spans after pruning, A antecedents per span, C = A + 1
choices (an antecedent or none), M mentions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from elmore.tasks.coref.data import PredictedCluster
from elmore.tasks.spans import Span
from elmore.transfer import to_device


class Spans(NamedTuple):
    """Start and end positions of many spans."""

    start: Int[Tensor, " S"]
    end: Int[Tensor, " S"]

    def to(self, device: torch.device) -> "Spans":
        """Return the spans on a device."""
        return Spans(*(to_device(x, device) for x in self))

    def take(self, rows: Int[Tensor, " K"]) -> "Spans":
        """Select spans."""
        return Spans(self.start[rows], self.end[rows])


def word_rows(lengths: Int[Tensor, " B"], longest: int) -> Int[Tensor, " N"]:
    """Return the rows of words, without padding, in a flattened batch: (2, 1), 3 -> 0 1 3."""
    return torch.cat([torch.arange(n) + longest * row for row, n in enumerate(lengths.tolist())])


def candidate_spans(lengths: Int[Tensor, " B"], max_width: int) -> Spans:
    """Return all spans of up to `max_width` words within a sentence."""
    sentence_end = lengths.cumsum(0).repeat_interleave(lengths)  # (N,)
    start = torch.arange(len(sentence_end))[:, None].expand(-1, max_width)
    end = start + torch.arange(1, max_width + 1)
    inside = end <= sentence_end[:, None]
    return Spans(start[inside], end[inside])


def prune_spans(scores: Float[Tensor, " S"], spans: Spans, count: int) -> Int[Tensor, " K"]:
    """Return the indices of up to `count` spans, in document order.

    Spans are taken greedily by score, skipping those that cross a span taken before: two spans
    cross if they overlap and neither contains the other.
    """
    starts, lasts = spans.start.tolist(), (spans.end - 1).tolist()
    farthest: dict[int, int] = {}  # last word of the longest kept span, by first word
    earliest: dict[int, int] = {}  # first word of the longest kept span, by last word
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if len(kept) == count:
            break
        start, last = starts[i], lasts[i]
        if any(farthest.get(t, t) > last for t in range(start + 1, last + 1)):
            continue
        if any(earliest.get(t, t) < start for t in range(start, last)):
            continue
        farthest[start] = max(last, farthest.get(start, last))
        earliest[last] = min(start, earliest.get(last, start))
        kept.append(i)
    return torch.tensor(sorted(kept, key=lambda i: (starts[i], lasts[i])))


def rows_before(x: Shaped[Tensor, "K *F"], A: int) -> Shaped[Tensor, "K A *F"]:  # noqa: F821
    """Return for each row the A rows before it, the nearest last; missing rows are zero.

    The result is a view: the backward pass of gathering would add up gradients row by row.
    """
    padded = torch.cat([x.new_zeros(A, *x.shape[1:]), x[:-1]])
    return padded.unfold(0, A, 1).movedim(-1, 1)


def positions_before(K: int, A: int, device: torch.device) -> Int[Tensor, "K A"]:
    """Return i - 1, i - 2, ..., i - A for each position i; negative ones do not exist."""
    here, distance = torch.arange(K, device=device), torch.arange(1, A + 1, device=device)
    return here[:, None] - distance


def cluster_ids(spans: Spans, mentions: Int[Tensor, "M 3"]) -> Int[Tensor, " K"]:
    """Return the gold cluster of each span, 0 for none; all on the CPU."""
    gold = {(start, end): cluster for start, end, cluster in mentions.tolist()}
    keys = zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    return torch.tensor([gold.get(key, 0) for key in keys])


def antecedent_loss(scores: Float[Tensor, "K C"], cluster: Int[Tensor, " K"]) -> Float[Tensor, ""]:
    """Return -log of the total probability of all gold antecedents, summed over spans."""
    before = positions_before(len(scores), scores.shape[1] - 1, scores.device)
    same = cluster[before.clamp(min=0)] == cluster[:, None]
    gold = same & (before >= 0) & (cluster[:, None] > 0)  # (K, A)
    none = ~gold.any(dim=1, keepdim=True)  # first mention of a cluster, or not a mention
    gold = torch.cat([none, gold], dim=1)
    gold_scores = scores.masked_fill(~gold, -torch.inf).logsumexp(dim=1)
    return (scores.logsumexp(dim=1) - gold_scores).sum()


def build_clusters(
    mentions: Sequence[Span], distances: Sequence[int], probabilities: Sequence[float]
) -> list[PredictedCluster]:
    """Join mentions that are linked to an antecedent.

    Args:
        mentions: The spans of a document.
        distances: How many positions before each span its antecedent is; 0 for none.
        probabilities: The probability of each antecedent, or of having none.
    """
    clusters: list[PredictedCluster] = []
    cluster: dict[int, PredictedCluster] = {}
    for i, distance in enumerate(distances):
        if not distance:
            continue
        first = i - distance
        if first not in cluster:
            cluster[first] = {mentions[first]: probabilities[first]}
            clusters.append(cluster[first])
        cluster[i] = cluster[first]
        cluster[i][mentions[i]] = probabilities[i]
    return sorted(clusters, key=list)
