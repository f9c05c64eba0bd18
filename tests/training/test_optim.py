"""Optimizers. Oracles: the update rules of weight decay and Adadelta; the norm by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from elmore.training.optim import clip_gradients, make_optimizer, set_learning_rate


def test_adamw_applies_weight_decay_to_matrices_only() -> None:
    model = nn.Linear(3, 2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, lr=0.5, weight_decay=0.1)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    set_learning_rate(optimizer, 0.2)
    optimizer.step()
    torch.testing.assert_close(model.weight, before["weight"] * (1 - 0.2 * 0.1))
    assert torch.equal(model.bias, before["bias"])


def test_first_adadelta_step_matches_the_formula_of_zeiler() -> None:
    model = nn.Linear(1, 1, bias=False)
    w, g, rho, eps = model.weight.item(), 0.3, 0.95, 1e-6
    model.weight.grad = torch.full((1, 1), g)
    make_optimizer(model, "adadelta", lr=1.0).step()
    step = np.sqrt(eps) / np.sqrt((1 - rho) * g**2 + eps) * g
    assert model.weight.item() == pytest.approx(w - step)


@pytest.mark.parametrize(("max_norm", "factor"), [(2.5, 0.5), (10.0, 1.0)])
def test_clipping_scales_all_gradients_together(max_norm: float, factor: float) -> None:
    parameters = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1, 1))]
    for p, value in zip(parameters, (3.0, 4.0), strict=True):
        p.grad = torch.full_like(p, value)
    assert clip_gradients(parameters, max_norm).item() == 5
    assert [p.grad.item() for p in parameters] == pytest.approx([3 * factor, 4 * factor])
