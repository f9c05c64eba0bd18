"""Attention, pooling and maxout. Oracle: their formulas in NumPy, word by word."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmore.mix import max_pool, mean_pool
from elmore.tasks.classify.model import BatchNorm, Maxout, maxout_layers, relu_layers
from elmore.tasks.modules.attention import dot_attention, masked_softmax
from elmore.tasks.modules.pooling import AttentivePool, min_pool

LENGTHS = [3, 5, 1]


def mask_of(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def test_dot_attention_matches_numpy() -> None:
    queries, keys = torch.randn(3, 4, 6), torch.randn(3, 5, 6)

    actual = dot_attention(queries, keys, mask_of(LENGTHS)).numpy()

    for b, length in enumerate(LENGTHS):
        words = keys[b, :length].numpy()
        for q in range(4):
            expected = softmax(words @ queries[b, q].numpy()) @ words
            np.testing.assert_allclose(actual[b, q], expected, atol=1e-5)


def test_attention_weights_sum_to_one_and_are_zero_at_padding() -> None:
    weights = masked_softmax(torch.randn(3, 5) * 50, mask_of(LENGTHS))
    assert (weights[~mask_of(LENGTHS)] == 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(3))


def test_empty_sentences_give_zeros_and_finite_gradients() -> None:
    x = torch.randn(2, 4, 6, requires_grad=True)
    mask = torch.tensor([[True] * 4, [False] * 4])

    pool = AttentivePool(6)
    results = (dot_attention(x, x, mask), pool(x, mask), min_pool(x, mask))
    sum(result.sum() for result in results).backward()

    assert all((result[1] == 0).all() for result in results)
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[1] == 0).all()


def test_pools_match_numpy() -> None:
    x, pool = torch.randn(3, 5, 4), AttentivePool(4)
    v, d = pool.score.weight[0].detach().numpy(), pool.score.bias.item()
    mask = mask_of(LENGTHS)

    for b, length in enumerate(LENGTHS):
        words = x[b, :length].numpy()
        expected = {
            max_pool: words.max(0),
            mean_pool: words.mean(0),
            min_pool: words.min(0),
            pool: softmax(words @ v + d) @ words,
        }
        for function, vector in expected.items():
            actual = function(x, mask)[b].detach().numpy()
            np.testing.assert_allclose(actual, vector, atol=1e-6)


def test_maxout_matches_numpy() -> None:
    layer = Maxout(5, 3, pieces=4)
    x = torch.randn(7, 5)
    W = layer.linear.weight.detach().numpy().reshape(3, 4, 5)
    b = layer.linear.bias.detach().numpy().reshape(3, 4)

    expected = (np.einsum("opi,bi->bop", W, x.numpy()) + b).max(-1)

    np.testing.assert_allclose(layer(x).detach().numpy(), expected, atol=1e-6)


def test_batch_norm_equals_pytorch_and_accepts_a_batch_of_one() -> None:
    ours, pytorch = BatchNorm(4), nn.BatchNorm1d(4)
    x = torch.randn(6, 4) * 3 + 1
    torch.testing.assert_close(ours(x), pytorch(x))
    with pytest.raises(ValueError, match="more than 1 value"):
        pytorch(x[:1])
    before = ours.running_mean.clone()
    torch.testing.assert_close(ours(x[:1]), pytorch.eval()(x[:1]))
    assert torch.equal(ours.running_mean, before)


@pytest.mark.parametrize(
    "layers", [relu_layers(16, 3, dropout=0.1), maxout_layers(16, 3, pieces=2, dropout=0.1)]
)
def test_classifier_layers_narrow_to_the_number_of_classes(layers: nn.Sequential) -> None:
    widths = [m.out_features for m in layers.modules() if isinstance(m, nn.Linear)]
    assert [w // (2 if isinstance(layers[0], BatchNorm) else 1) for w in widths] == [8, 4, 3]
    assert layers(torch.randn(5, 16)).shape == (5, 3)
