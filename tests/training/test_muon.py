"""Muon. Oracles: `torch.optim.Muon`, AdamW, and singular values."""

import copy

import pytest
import torch
from torch import nn

from elmore.training.checkpoints import optimizer_tensors, restore_optimizer
from elmore.training.muon import orthogonalize
from elmore.training.optim import make_optimizer, set_learning_rate


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 40), nn.Linear(40, 6), nn.Linear(6, 40))


def set_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs PyTorch 2.9")
def test_linear_layers_are_updated_by_muon_and_the_rest_by_adamw() -> None:
    model, expected = network(), network()
    matrices = [layer.weight for layer in expected[1:]]
    others = [p for p in expected.parameters() if all(p is not m for m in matrices)]
    optimizers = [
        torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [
                {"params": [p for p in others if p.ndim > 1], "weight_decay": 0.1},
                {"params": [p for p in others if p.ndim == 1], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.98),
        ),
    ]
    optimizer = make_optimizer(model, "muon", lr=1.0, betas=(0.9, 0.98), weight_decay=0.1)
    for step, lr in enumerate((0.02, 0.05, 0.01)):
        for module in (model, expected):
            set_gradients(module, step)
        for each in (optimizer, *optimizers):
            set_learning_rate(each, lr)
            each.step()
    for name, p in model.named_parameters():
        # The reference rounds its updates to bfloat16.
        torch.testing.assert_close(
            p, expected.get_parameter(name), rtol=0, atol=2e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("shape", [(3, 64, 256), (2, 256, 64), (1, 32, 32)])
def test_orthogonalize_keeps_singular_vectors_and_equalizes_singular_values(
    shape: tuple[int, int, int],
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    result = orthogonalize(x)
    values = torch.einsum("nak,nab,nkb->nk", u, result, v)
    assert 0.3 < values.min() <= values.max() < 1.3
    torch.testing.assert_close(u @ values.diag_embed() @ v, result, rtol=0, atol=0.02)


def test_restored_optimizer_continues_with_the_same_bits() -> None:
    model = network()
    optimizer = make_optimizer(model, "muon", lr=0.02)
    set_gradients(model, 0)
    optimizer.step()
    resumed = copy.deepcopy(model)
    other = make_optimizer(resumed, "muon", lr=0.02)
    restore_optimizer(other, {k: v.clone() for k, v in optimizer_tensors(optimizer).items()})
    for module, each in ((model, optimizer), (resumed, other)):
        set_gradients(module, 1)
        each.step()
    for name, p in model.named_parameters():
        assert torch.equal(p, resumed.get_parameter(name)), name


def test_frozen_layers_do_not_change() -> None:
    """Oracle: the weights before the step, and a model of the other layers alone."""
    model, others = network(), network()[2:]
    model[:2].requires_grad_(False)
    before = copy.deepcopy(model[:2].state_dict())
    for module in (model[2:], others):
        set_gradients(module, 0)
    for module in (model, others):
        make_optimizer(module, "muon", lr=0.02, weight_decay=0.1).step()
    for name, p in model[:2].named_parameters():
        assert torch.equal(p, before[name]), name
    for p, expected in zip(model[2:].parameters(), others.parameters(), strict=True):
        assert torch.equal(p, expected)
