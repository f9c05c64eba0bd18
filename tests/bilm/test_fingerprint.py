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


@pytest.mark.parametrize("how", ["assign", "parameter", "data"])
def test_a_weight_in_the_place_of_another_counts(how: str) -> None:
    """Though it has the same numbers in another order, and no version counts."""
    module = nn.Linear(2, 2, bias=False)
    module.weight = nn.Parameter(torch.arange(4.0).view(2, 2))
    before = fingerprint(module)
    other = module.weight.detach().flip(0).clone()
    if how == "assign":
        module.load_state_dict({"weight": other}, assign=True)
    elif how == "parameter":
        module.weight = nn.Parameter(other)
    else:
        module.weight.data = other
    assert fingerprint(module) != before


@torch.inference_mode()
def test_weights_of_inference_mode_have_no_versions() -> None:
    module = nn.Linear(2, 2)
    before = fingerprint(module)
    module.weight[0, 0] += 1
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
