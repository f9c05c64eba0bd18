"""Coreference scores: MUC, B-cubed, CEAF-e and their average, as in the CoNLL-2012 scorer.

The key holds the gold clusters, the response the predicted ones (Pradhan et al., 2014). Each metric
returns four counts that are summed over documents: numerator and denominator of precision, then
of recall.

R rows, C columns.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from elmore.tasks.spans import Span

Clusters = Sequence[Collection[Span]]
Counts = Float[np.ndarray, " 4"]


def coref_scores(keys: Iterable[Clusters], responses: Iterable[Clusters]) -> dict[str, float]:
    """Return the average F1, and precision, recall and F1 of each metric, over all documents."""
    metrics: dict[str, Callable[[Clusters, Clusters], Counts]] = {
        "muc": muc,
        "b_cubed": b_cubed,
        "ceaf_e": ceaf_e,
        "mentions": mentions,
    }
    totals = {name: np.zeros(4) for name in metrics}
    for key, response in zip(keys, responses, strict=True):
        for name, metric in metrics.items():
            totals[name] += metric(key, response)
    scores = {name: precision_recall_f1(counts) for name, counts in totals.items()}
    average = sum(scores[name]["f1"] for name in ("muc", "b_cubed", "ceaf_e")) / 3
    parts = {  # the F1s that make up the average come first
        f"{name}_{part}": scores[name][part]
        for part in ("f1", "precision", "recall")
        for name in metrics
    }
    return {"average": average, **parts}


def precision_recall_f1(counts: Counts) -> dict[str, float]:
    """Compute the scores from the counts; 0 where a denominator is 0."""
    precise, predicted, recalled, gold = counts.tolist()
    precision = precise / predicted if predicted else 0.0
    recall = recalled / gold if gold else 0.0
    both = precision + recall
    return {
        "f1": 2 * precision * recall / both if both else 0.0,
        "precision": precision,
        "recall": recall,
    }


def muc(key: Clusters, response: Clusters) -> Counts:
    """Count links (Vilain et al., 1995).

    A cluster of n mentions has n - 1 links. If the other side splits it into p parts, p - 1 of
    them are missing.
    """
    return np.array([*_links(response, key), *_links(key, response)], dtype=float)


def _links(clusters: Clusters, others: Clusters) -> tuple[int, int]:
    """Return the number of links of `clusters` that `others` have too, and of all their links."""
    other = _cluster_index(others)
    common = total = 0
    for cluster in clusters:
        # A mention that is in no other cluster is a part of its own.
        parts = {other.get(mention, mention) for mention in cluster}
        common += len(cluster) - len(parts)
        total += len(cluster) - 1
    return common, total


def b_cubed(key: Clusters, response: Clusters) -> Counts:
    """Sum the per-mention precision and recall (Bagga and Baldwin, 1998)."""
    return np.array([*_shares(response, key), *_shares(key, response)], dtype=float)


def _shares(clusters: Clusters, others: Clusters) -> tuple[float, int]:
    """Return a sum over the mentions of `clusters`, and their number.

    The summand is the share of the mention's cluster that is in its cluster in `others`, too.
    """
    other = _cluster_index(others)
    share = 0.0
    for cluster in clusters:
        overlaps = Counter(other[mention] for mention in cluster if mention in other)
        share += sum(n * n for n in overlaps.values()) / len(cluster)
    return share, sum(map(len, clusters))


def ceaf_e(key: Clusters, response: Clusters) -> Counts:
    """Sum the similarity of clusters under the best one-to-one alignment (Luo, 2005)."""
    other = _cluster_index(response)
    similarity = np.zeros((len(key), len(response)))
    for row, cluster in enumerate(key):
        overlaps = Counter(other[mention] for mention in cluster if mention in other)
        for column, n in overlaps.items():  # phi_4 of the two clusters
            similarity[row, column] = 2 * n / (len(cluster) + len(response[column]))
    total = sum(similarity[pair] for pair in linear_assignment(similarity))
    return np.array([total, len(response), total, len(key)], dtype=float)


def mentions(key: Clusters, response: Clusters) -> Counts:
    """Count common mentions, regardless of their clusters."""
    gold, predicted = (set(_cluster_index(clusters)) for clusters in (key, response))
    common = len(gold & predicted)
    return np.array([common, len(predicted), common, len(gold)], dtype=float)


def _cluster_index(clusters: Clusters) -> dict[Span, int]:
    """Return the index of each mention's cluster."""
    return {mention: i for i, cluster in enumerate(clusters) for mention in cluster}


def linear_assignment(value: Float[np.ndarray, "R C"]) -> list[tuple[int, int]]:
    """Pair rows with columns, each at most once, so that the sum of their values is maximal.

    The Hungarian algorithm with potentials (Kuhn, 1955; Jonker and Volgenant, 1987): rows are
    added one by one, each along the shortest augmenting path to a free column.
    """
    if value.shape[0] > value.shape[1]:
        return [(row, column) for column, row in linear_assignment(value.T)]
    R, C = value.shape
    row_of = np.full(C + 1, -1)  # the row of each column; the last column holds the new row
    u, v = np.zeros(R), np.zeros(C + 1)  # potentials: -value - u - v >= 0, and = 0 for pairs
    for row in range(R):
        row_of[C] = row
        column, previous = _shortest_path(-value, row_of, u, v)
        while column != C:
            row_of[column] = row_of[previous[column]]
            column = int(previous[column])
    return [(int(row), column) for column, row in enumerate(row_of[:C]) if row >= 0]


def _shortest_path(
    cost: Float[np.ndarray, "R C"],
    row_of: Int[np.ndarray, " C+1"],
    u: Float[np.ndarray, " R"],
    v: Float[np.ndarray, " C+1"],
) -> tuple[int, Int[np.ndarray, " C"]]:
    """Return the nearest free column and the path to it; update the potentials in place."""
    C = cost.shape[1]
    distance, previous = np.full(C, np.inf), np.full(C, C)
    reached = np.zeros(C + 1, dtype=bool)
    column = C
    while row_of[column] >= 0:
        reached[column] = True
        row = row_of[column]
        step = cost[row] - u[row] - v[:C]
        nearer = ~reached[:C] & (step < distance)
        distance[nearer], previous[nearer] = step[nearer], column
        column = int(np.where(reached[:C], np.inf, distance).argmin())
        delta = distance[column]
        u[row_of[reached]] += delta
        v[reached] -= delta
        distance[~reached[:C]] -= delta
    return column, previous
