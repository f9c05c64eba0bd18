"""Oracle: the reference path, in float32, on the same device."""

import copy

import pytest
import torch
from torch import Tensor, nn

from elmore.bilm import kernels
from elmore.bilm.config import BiLMConfig
from elmore.bilm.language_model import LanguageModel, LMOutput
from elmore.bilm.lstm import LSTMState
from elmore.bilm.model import BiLM, BiLMState
from elmore.bilm.softmax import Negatives, Softmax
from elmore.text.characters import encode_words
from elmore.text.windows import LMBatch
from tests.gpu import DEVICE, needs_kernels

pytestmark = needs_kernels

WORDS = ["a", "the", "banana", "</S>", "<S>", "x" * 60, "é" * 23, "", "of", "Mississippi", "q" * 44]


def config(**changes: object) -> BiLMConfig:
    sizes = {
        "filters": ((1, 4), (2, 8), (3, 20), (7, 130)),
        "dim": 24,
        "cell_dim": 96,
        "num_highways": 1,
        "dropout": 0.0,
        "cell_clip": 0.5,  # low, so that the bounds are met
        "projection_clip": 0.4,
    }
    return BiLMConfig(**{**sizes, **changes})


def model(bilm_config: BiLMConfig, V: int = 300, scale: float = 6) -> LanguageModel:
    lm = LanguageModel(BiLM(bilm_config), Softmax(dim=bilm_config.dim, vocab_size=V)).to(DEVICE)
    with torch.no_grad():
        lm.softmax.bias.normal_()
        for lstms in (lm.bilm.forward_lstms, lm.bilm.backward_lstms):
            for lstm in lstms:
                lstm.input.weight.mul_(scale)
                lstm.recurrent.weight.mul_(scale)
                lstm.project.weight.mul_(scale / 2)
    return lm


def batch(bilm_config: BiLMConfig, B: int = 5, T: int = 4, V: int = 300) -> LMBatch:
    if bilm_config.vocab_size is None:
        distinct = encode_words(WORDS)
    else:
        distinct = torch.arange(1, len(WORDS) + 1)
    words = torch.randint(len(WORDS), (2, B, T))
    targets = torch.randint(V, (2, B, T))
    continues = torch.rand(2, B, T) < 0.7  # many sentences start, in every place of the window
    return LMBatch(*(x.to(DEVICE) for x in (distinct, words, targets, continues)))


def some_state(bilm_config: BiLMConfig, B: int = 5) -> BiLMState:
    D, H = bilm_config.dim, bilm_config.cell_dim
    draw = torch.Generator().manual_seed(1)
    return [
        LSTMState(
            torch.rand(B, D, generator=draw).sub(0.5).mul(0.5).to(DEVICE),
            torch.rand(B, H, generator=draw).sub(0.5).to(DEVICE),
        )
        for _ in range(2 * bilm_config.num_layers)
    ]


def negatives(V: int = 300, S: int = 50) -> Negatives:
    ids = torch.randperm(V, generator=torch.Generator().manual_seed(2))[:S]
    return Negatives(ids.to(DEVICE), torch.tensor(70.0, device=DEVICE))


def gradients(
    lm: nn.Module, monkeypatch: pytest.MonkeyPatch, *args: object, fast: bool, bf16: bool = False
) -> tuple[LMOutput, dict[str, Tensor]]:
    monkeypatch.setattr(kernels, "usable", lambda x: fast)
    if DEVICE == "cpu":
        monkeypatch.setattr(
            kernels, "compute_dtype", lambda _: torch.bfloat16 if bf16 else torch.float32
        )
        for name in ("lstm", "characters", "softmax"):
            module = __import__(f"elmore.bilm.kernels.{name}", fromlist=["x"])
            monkeypatch.setattr(module, "compute_dtype", kernels.compute_dtype)
            if name != "characters":
                monkeypatch.setattr(
                    module, "multiply", lambda a, b, out: out.copy_(a.float() @ b.float())
                )
    lm = copy.deepcopy(lm)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=bf16):
        output = lm(*args)
    output.loss.backward()
    return output, {name: p.grad for name, p in lm.named_parameters() if p.grad is not None}


def relative_error(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm().clamp_min(1e-12)).item()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"residual": False, "num_layers": 3, "activation": "tanh"},
        {"cell_clip": None, "projection_clip": None},
        {"vocab_size": 50},
        {"project_filters": False, "dim": 162, "cell_dim": 70, "char_dim": 5},
    ],
    ids=["paper", "no-residual", "no-clip", "word-input", "odd-sizes"],
)
@pytest.mark.parametrize("carried", [False, True], ids=["fresh", "carried"])
def test_equals_the_reference_in_float32(
    changes: dict[str, object], carried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = config(**changes)
    lm = model(sizes)
    args = batch(sizes), some_state(sizes) if carried else None, negatives()
    expected, expected_grads = gradients(lm, monkeypatch, *args, fast=False)
    found, grads = gradients(lm, monkeypatch, *args, fast=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert grads.keys() == expected_grads.keys()
    for name, grad in grads.items():
        assert grad.dtype == torch.float32
        assert relative_error(grad, expected_grads[name]) < 1e-4, name


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter's bfloat16 is not to be trusted")
def test_bfloat16_stays_close(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = config(cell_clip=3.0, projection_clip=3.0)
    lm = model(sizes, scale=2)
    args = batch(sizes, B=40), some_state(sizes, B=40), negatives()
    expected, expected_grads = gradients(lm, monkeypatch, *args, fast=False)
    found, grads = gradients(lm, monkeypatch, *args, fast=True, bf16=True)
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-3)
    assert found.state[0].cell.dtype == torch.float32
    for name, grad in grads.items():
        # Rounding changes which of two windows is the larger, which moves a filter's gradient.
        bound = 0.2 if "convs" in name or "encode.embed" in name else 0.05
        assert relative_error(grad, expected_grads[name]) < bound, name


def test_every_target_drawn_and_none_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = config()
    lm = model(sizes)
    window = batch(sizes)
    tries = torch.tensor(500.0, device=DEVICE)
    for ids in (torch.arange(300), torch.arange(300, 310)):
        lm.softmax = Softmax(dim=sizes.dim, vocab_size=310).to(DEVICE)
        args = window, None, Negatives(ids.to(DEVICE), tries)
        _, expected = gradients(lm, monkeypatch, *args, fast=False)
        _, found = gradients(lm, monkeypatch, *args, fast=True)
        for name in ("softmax.weight", "softmax.bias"):
            assert relative_error(found[name], expected[name]) < 1e-4, name
