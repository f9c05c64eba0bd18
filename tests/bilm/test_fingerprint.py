"""Oracle: what was changed."""

import pytest
import torch
from torch import nn

from elmore.bilm.fingerprint import fingerprint


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("size", "start"), [(3, 0), (3, 1), (8, 0), (8, 1), (7, 2), (0, 0)])
def test_any_number_counts(dtype: torch.dtype, size: int, start: int) -> None:
    """Wherever a weight lies in memory, and however long it is."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.arange(start + size, dtype=dtype)[start:])
    before = fingerprint(module)
    assert fingerprint(module) == before
    for i in range(size):
        module.weight.data[i] += 1
        assert fingerprint(module) != before
        module.weight.data[i] -= 1
        assert fingerprint(module) == before


def test_a_change_counts_though_the_sum_is_the_same() -> None:
    module = nn.Linear(2, 2)
    before = fingerprint(module)
    with torch.no_grad():
        module.weight.copy_(module.weight.flip(0))
    assert fingerprint(module) != before


def test_an_optimizer_that_counts_no_versions_is_noticed() -> None:
    module = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    module(torch.ones(1, 8)).sum().backward()
    before = fingerprint(module)
    optimizer.step()
    assert fingerprint(module) != before


def test_weights_that_are_not_in_one_piece() -> None:
    module = nn.Module()
    module.weight = nn.Parameter(torch.arange(12.0).view(3, 4).t())
    before = fingerprint(module)
    module.weight.data[2, 1] = 100
    assert fingerprint(module) != before
