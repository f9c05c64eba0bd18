"""Copies of device tensors as arrays. Oracle: the tensor itself."""

import numpy as np
import pytest
import torch

from elmore.inference import fetch
from elmore.inference.fetch import Fetcher, by_sentence, to_numpy

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("lengths", [[0], [1], [400, 0, 599]])
@pytest.mark.parametrize("layers", [(), (3,)])
def test_each_sentence_gets_the_array_of_its_words(
    device: str, dtype: torch.dtype, lengths: list[int], layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some arrays are too small to stay in pinned memory, some too large.
    monkeypatch.setattr(fetch, "_MIN_PINNED_BYTES", 100)
    monkeypatch.setattr(fetch, "_MAX_PINNED_BYTES", 10_000)
    tensors = [torch.randn(*layers, sum(lengths), 3, dtype=dtype) for _ in range(5)]
    with Fetcher() as fetcher:
        started = [fetcher.start(x.to(device), lengths) for x in tensors]
        for tensor, fetch_arrays in zip(tensors, started, strict=True):
            expected = tensor.split(lengths, dim=-2)
            for sentence, array in zip(expected, fetch_arrays, strict=True):
                np.testing.assert_array_equal(array, sentence.numpy(), strict=True)


def test_arrays_from_a_cpu_own_their_memory() -> None:
    with Fetcher() as fetcher:
        for array in fetcher.start(torch.randn(3, 5, 2), [2, 3]):
            assert array.flags.owndata
            assert array.flags.c_contiguous


def test_by_sentence_groups_the_layers_of_each_sentence() -> None:
    layers = torch.tensor([[[1], [2], [3]], [[10], [20], [30]]])
    assert by_sentence(layers, [2, 0, 1]).flatten().tolist() == [1, 2, 10, 20, 3, 30]


def test_memory_is_lent_until_its_last_view_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_MIN_PINNED_BYTES", 8)
    monkeypatch.setattr(fetch, "_MAX_PINNED_BYTES", 32)

    def is_lent(tensor: torch.Tensor, array: np.ndarray) -> bool:
        np.testing.assert_array_equal(array, tensor.numpy(), strict=True)
        return np.shares_memory(array, tensor.numpy())

    small, first, second, third = (torch.arange(n, dtype=torch.int16) for n in (3, 8, 8, 8))
    assert not is_lent(small, to_numpy(small))
    kept = to_numpy(first)
    also_kept = to_numpy(second)
    assert is_lent(first, kept)
    assert is_lent(second, also_kept)
    assert not is_lent(third, to_numpy(third))
    view = kept.reshape(2, 4)[1:]
    del kept
    assert not is_lent(third, to_numpy(third))
    np.testing.assert_array_equal(view, [[4, 5, 6, 7]])
    del view
    assert is_lent(third, to_numpy(third))
