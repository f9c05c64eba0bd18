"""Groups of similar vectors: spherical k-means, with the number of groups by silhouette.

N vectors, K clusters, D dim.
"""

import numpy as np
from jaxtyping import Float, Int

from elmore.analysis.neighbors import unit

_MIN_SILHOUETTE = 0.1
"""Clusters that are separated less than this are one cluster."""


def cluster(vectors: Float[np.ndarray, "N D"], *, max_clusters: int = 5) -> Int[np.ndarray, " N"]:
    """Return the cluster of each vector by cosine similarity, 0 for the largest cluster.

    The number of clusters, up to `max_clusters`, is the one with the best mean silhouette.
    Deterministic.
    """
    units = unit(vectors.astype(np.float64))
    distances = 1 - units @ units.T  # (N, N)
    best, best_score = np.zeros(len(units), dtype=np.int64), _MIN_SILHOUETTE
    for count in range(2, min(max_clusters, len(units) - 1) + 1):
        labels = _k_means(units, count)
        score = silhouette(distances, labels)
        if score > best_score:
            best, best_score = labels, score
    _, labels, sizes = np.unique(best, return_inverse=True, return_counts=True)
    ranks = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
    return ranks[labels]


def _k_means(units: Float[np.ndarray, "N D"], count: int) -> Int[np.ndarray, " N"]:
    """Assign unit vectors to `count` centers, which start as far from each other as possible."""
    chosen = [int((units @ units.mean(axis=0)).argmin())]
    while len(chosen) < count:
        chosen.append(int((units @ units[chosen].T).max(axis=1).argmin()))
    centers = units[chosen]
    labels = np.full(len(units), -1)
    for _ in range(100):
        new = (units @ centers.T).argmax(axis=1)
        if (new == labels).all():
            break
        labels = new
        # An empty cluster keeps its center.
        means = [units[labels == i].mean(axis=0) if (labels == i).any() else centers[i]
                 for i in range(count)]  # fmt: skip
        centers = unit(np.stack(means))
    return labels


def silhouette(distances: Float[np.ndarray, "N N"], labels: Int[np.ndarray, " N"]) -> float:
    """Return the mean silhouette (Rousseeuw, 1987); vectors alone in their cluster count as 0."""
    names = np.unique(labels)
    if len(names) < 2:
        return 0.0
    members = labels == names[:, None]  # (K, N)
    sums, sizes = distances @ members.T, members.sum(axis=1)  # (N, K), (K,)
    own = members.T
    inside = (sums * own).sum(axis=1) / np.maximum((sizes * own).sum(axis=1) - 1, 1)
    outside = np.where(own, np.inf, sums / sizes).min(axis=1)
    scores = (outside - inside) / np.maximum(np.maximum(inside, outside), np.finfo(float).tiny)
    return float(np.where((sizes * own).sum(axis=1) > 1, scores, 0.0).mean())
