"""Clusters and character filters. Oracles: scikit-learn's silhouette; a convolution in numpy."""

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from elmore.analysis.clusters import cluster, silhouette
from elmore.analysis.filters import match_filters
from elmore.bilm.model import BiLM
from elmore.text.characters import encode_words


def groups(sizes: list[int], noise: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = np.eye(len(sizes), 16).repeat(sizes, axis=0)
    return centers + noise * rng.normal(size=centers.shape) / 4


@pytest.mark.parametrize("sizes", [[9, 4], [8, 6, 3], [5, 4, 3, 2]])
def test_separate_groups_are_found_largest_first(sizes: list[int]) -> None:
    labels = cluster(groups(sizes))
    assert labels.tolist() == np.arange(len(sizes)).repeat(sizes).tolist()


@pytest.mark.parametrize("vectors", [np.ones((1, 4)), np.ones((5, 4)), np.zeros((3, 4))])
def test_equal_or_single_vectors_are_one_cluster(vectors: np.ndarray) -> None:
    assert cluster(vectors).tolist() == [0] * len(vectors)


def test_silhouette_is_that_of_scikit_learn() -> None:
    vectors = groups([6, 5, 1], noise=2)
    labels = np.array([0] * 6 + [1] * 5 + [2])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = silhouette_score(vectors, labels, metric="cosine")
    assert silhouette(1 - units @ units.T, labels) == pytest.approx(expected)


def test_strongest_filters_are_maxima_of_the_convolution(bilm: BiLM) -> None:
    encoder = bilm.encode
    ids = encode_words(["banking"])[0]
    characters = encoder.embed.weight.detach().numpy()[ids.numpy()]  # (C, E)
    for conv, group in zip(encoder.convs, match_filters(encoder, ids, k=3), strict=True):
        weight, bias = (p.detach().numpy() for p in conv.parameters())
        width = weight.shape[2]
        windows = [characters[i : i + width].T for i in range(len(characters) - width + 1)]
        outputs = np.array([np.tensordot(weight, w, 2) + bias for w in windows]).clip(min=0)
        pooled = outputs.max(axis=0)
        assert (group.width, group.filters, group.fired) == (width, len(bias), (pooled > 0).sum())
        best = sorted(pooled, reverse=True)[:3]
        np.testing.assert_allclose([m.activation for m in group.strongest], best, rtol=1e-5)
        for match in group.strongest:
            np.testing.assert_allclose(
                outputs[match.start, match.filter], match.activation, rtol=1e-5
            )
    assert torch.is_grad_enabled()
