"""Scores of clusters: MUC, B-cubed, CEAF-e and their average, as the CoNLL-2012 scorer has them.

The key is what is right, the response what was found (Pradhan et al., 2014). Each score is four
numbers that add up over documents: numerator and denominator of precision, then of recall.

R rows, C columns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from elmore.tasks.coref.data import Mention

Clusters = Sequence[Sequence[Mention]]
Counts = Float[np.ndarray, " 4"]


def coref_scores(keys: Iterable[Clusters], responses: Iterable[Clusters]) -> dict[str, float]:
    """Return precision, recall and F1 of each score over all documents, and the average F1."""
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
    parts = {  # the three F1s first: they are what the average is made of
        f"{name}_{part}": scores[name][part]
        for part in ("f1", "precision", "recall")
        for name in metrics
    }
    return {"average": average, **parts}


def precision_recall_f1(counts: Counts) -> dict[str, float]:
    """Divide; nothing found, or nothing to find, is 0."""
    right, given, found, wanted = counts.tolist()
    precision = right / given if given else 0.0
    recall = found / wanted if wanted else 0.0
    both = precision + recall
    return {
        "f1": 2 * precision * recall / both if both else 0.0,
        "precision": precision,
        "recall": recall,
    }


def muc(key: Clusters, response: Clusters) -> Counts:
    """Count links (Vilain et al., 1995): a cluster that lies in n parts lacks n - 1 of them."""
    return np.array([*_links(response, key), *_links(key, response)], dtype=float)


def _links(of: Clusters, others: Clusters) -> tuple[int, int]:
    """Return the links of clusters that others have too, and all of them."""
    other = _cluster_of(others)
    common = every = 0
    for cluster in of:
        # A mention that no other cluster has is a part of its own.
        parts = {other.get(mention, mention) for mention in cluster}
        common += len(cluster) - len(parts)
        every += len(cluster) - 1
    return common, every


def b_cubed(key: Clusters, response: Clusters) -> Counts:
    """Count, mention by mention, how much of its cluster is common (Bagga and Baldwin, 1998)."""
    return np.array([*_shares(response, key), *_shares(key, response)], dtype=float)


def _shares(of: Clusters, others: Clusters) -> tuple[float, int]:
    """Return the sum over mentions of what share of their cluster others have, and how many."""
    other = _cluster_of(others)
    share = 0.0
    for cluster in of:
        together = Counter(other[mention] for mention in cluster if mention in other)
        share += sum(n * n for n in together.values()) / len(cluster)
    return share, sum(map(len, of))


def ceaf_e(key: Clusters, response: Clusters) -> Counts:
    """Pair each cluster with one other at most, as well as can be (Luo, 2005)."""
    other = _cluster_of(response)
    likeness = np.zeros((len(key), len(response)))
    for row, cluster in enumerate(key):
        common = Counter(other[mention] for mention in cluster if mention in other)
        for column, n in common.items():  # phi_4 of the two clusters
            likeness[row, column] = 2 * n / (len(cluster) + len(response[column]))
    total = sum(likeness[pair] for pair in best_pairs(likeness))
    return np.array([total, len(response), total, len(key)], dtype=float)


def mentions(key: Clusters, response: Clusters) -> Counts:
    """Count the mentions that both have, in whatever clusters."""
    wanted, given = (set(_cluster_of(clusters)) for clusters in (key, response))
    right = len(wanted & given)
    return np.array([right, len(given), right, len(wanted)], dtype=float)


def _cluster_of(clusters: Clusters) -> dict[Mention, int]:
    return {mention: i for i, cluster in enumerate(clusters) for mention in cluster}


def best_pairs(value: Float[np.ndarray, "R C"]) -> list[tuple[int, int]]:
    """Pair rows with columns, each at most once, so that the sum of values is the largest.

    The Hungarian method with potentials (Kuhn, 1955; Jonker and Volgenant, 1987): rows enter one
    after the other, each along the shortest path of exchanges to a column that is still free.
    """
    if value.shape[0] > value.shape[1]:
        return [(row, column) for column, row in best_pairs(value.T)]
    R, C = value.shape
    row_of = np.full(C + 1, -1)  # of each column; the last one is where a new row starts
    u, v = np.zeros(R), np.zeros(C + 1)  # so that -value - u - v >= 0, and = 0 for pairs
    for row in range(R):
        row_of[C] = row
        column, came_from = _shortest_path(-value, row_of, u, v)
        while column != C:
            row_of[column] = row_of[came_from[column]]
            column = int(came_from[column])
    return [(int(row), column) for column, row in enumerate(row_of[:C]) if row >= 0]


def _shortest_path(
    cost: Float[np.ndarray, "R C"],
    row_of: Int[np.ndarray, " C+1"],
    u: Float[np.ndarray, " R"],
    v: Float[np.ndarray, " C+1"],
) -> tuple[int, Int[np.ndarray, " C"]]:
    """Return the nearest free column and the way to it; keep the potentials true, in place."""
    C = cost.shape[1]
    distance, came_from = np.full(C, np.inf), np.full(C, C)
    reached = np.zeros(C + 1, dtype=bool)
    column = C
    while row_of[column] >= 0:
        reached[column] = True
        row = row_of[column]
        step = cost[row] - u[row] - v[:C]
        nearer = ~reached[:C] & (step < distance)
        distance[nearer], came_from[nearer] = step[nearer], column
        column = int(np.where(reached[:C], np.inf, distance).argmin())
        delta = distance[column]
        u[row_of[reached]] += delta
        v[reached] -= delta
        distance[~reached[:C]] -= delta
    return column, came_from
