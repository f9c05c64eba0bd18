"""Training kernels. Oracle: plain PyTorch on the same device, in float32 and float64."""

import copy
from functools import partial

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
        "max_characters": 20,
        "filters": ((1, 4), (2, 8), (3, 20), (7, 40)),  # 72 filters need more than one tile
        "dim": 24,
        "cell_dim": 96,
        "num_highways": 1,
        "dropout": 0.0,
        "cell_clip": 0.5,  # low, so that values are clipped
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
        distinct = encode_words(WORDS, bilm_config.max_characters)
    else:
        distinct = torch.arange(1, len(WORDS) + 1)
    words = torch.randint(len(WORDS), (2, B, T))
    targets = torch.randint(V, (2, B, T))
    keep_state = torch.rand(2, B, T) < 0.7  # sentences start at random positions
    return LMBatch(*(x.to(DEVICE) for x in (distinct, words, targets, keep_state)))


def random_state(bilm_config: BiLMConfig, B: int = 5) -> BiLMState:
    D, H = bilm_config.dim, bilm_config.cell_dim
    generator = torch.Generator().manual_seed(1)
    return [
        LSTMState(
            torch.rand(B, D, generator=generator).sub(0.5).mul(0.5).to(DEVICE),
            torch.rand(B, H, generator=generator).sub(0.5).to(DEVICE),
        )
        for _ in range(2 * bilm_config.num_layers)
    ]


def negatives(V: int = 300, S: int = 50) -> Negatives:
    ids = torch.randperm(V, generator=torch.Generator().manual_seed(2))[:S]
    return Negatives(ids.to(DEVICE), torch.tensor(70.0, device=DEVICE))


def gradients(
    lm: nn.Module,
    monkeypatch: pytest.MonkeyPatch,
    *args: object,
    use_kernels: bool,
    bf16: bool = False,
) -> tuple[LMOutput, dict[str, Tensor]]:
    monkeypatch.setattr(kernels, "usable", lambda x: use_kernels)
    lm = copy.deepcopy(lm)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=bf16):
        output = lm(*args)
    output.loss.backward()
    return output, {name: p.grad for name, p in lm.named_parameters() if p.grad is not None}


def relative_error(x: Tensor, expected: Tensor) -> float:
    return ((x - expected).norm() / expected.norm().clamp_min(1e-12)).item()


def in_float64(state: BiLMState | None) -> BiLMState | None:
    return state and [LSTMState(s.output.double(), s.cell.double()) for s in state]


def tensors(output: LMOutput) -> list[Tensor]:
    return [output.loss, output.losses, *(x for s in output.state for x in s)]


def assert_accurate(actual: list[Tensor], reference: list[Tensor], exact: list[Tensor]) -> None:
    """Assert that the error is at most five times that of the float32 reference."""
    for x, y, z in zip(actual, reference, exact, strict=True):
        assert relative_error(x.double(), z) < 5 * relative_error(y.double(), z) + 1e-5


@pytest.mark.parametrize(
    ("changes", "carry_state"),
    [
        ({}, True),
        ({"residual": False, "num_layers": 3, "activation": "tanh"}, False),
        ({"cell_clip": None, "projection_clip": None, "vocab_size": 50}, True),
        ({"project_filters": False, "dim": 72, "cell_dim": 70, "char_dim": 5}, False),
    ],
    ids=["paper", "no-residual", "word-input-no-clipping", "odd-sizes"],
)
def test_loss_and_gradients_equal_the_reference_in_float32(
    changes: dict[str, object], carry_state: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = config(**changes)
    lm = model(sizes)
    args = batch(sizes), random_state(sizes) if carry_state else None, negatives()
    expected, expected_grads = gradients(lm, monkeypatch, *args, use_kernels=False)
    output, grads = gradients(lm, monkeypatch, *args, use_kernels=True)
    args = args[0], in_float64(args[1]), args[2]
    exact, exact_grads = gradients(
        copy.deepcopy(lm).double(), monkeypatch, *args, use_kernels=False
    )
    # Large weights amplify rounding errors, also those of the reference.
    assert_accurate(tensors(output), tensors(expected), tensors(exact))
    assert grads.keys() == expected_grads.keys()
    assert all(grad.dtype == torch.float32 for grad in grads.values())
    assert_accurate(*(list(g.values()) for g in (grads, expected_grads, exact_grads)))


# The character kernels use `tl.dot`, which is wrong in bfloat16 in Triton's interpreter.
@pytest.mark.parametrize("vocab_size", [None, 50] if DEVICE == "cuda" else [50])
def test_loss_and_gradients_in_bfloat16_are_close_to_float32(
    vocab_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = config(cell_clip=3.0, projection_clip=3.0, vocab_size=vocab_size)
    lm = model(sizes, scale=2)
    args = batch(sizes, B=12), random_state(sizes, B=12), negatives()
    expected, expected_grads = gradients(lm, monkeypatch, *args, use_kernels=False)
    output, grads = gradients(lm, monkeypatch, *args, use_kernels=True, bf16=True)
    assert output.loss.item() == pytest.approx(expected.loss.item(), rel=1e-3)
    assert output.state[0].cell.dtype == torch.float32
    for name, grad in grads.items():
        # Rounding can change the argmax of max-pooling, which changes the gradient of a filter.
        bound = 0.2 if "convs" in name or "encode.embed" in name else 0.05
        assert relative_error(grad, expected_grads[name]) < bound, name


MANY_WORDS = [f"{'w' * (n % 7)}{n}" for n in range(70)]
LONG_WORDS = ["".join(f"{n * n:x}" for n in range(k, k + 99)) for k in (1, 2, 3)]


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (MANY_WORDS, {"max_characters": 8}),
        (LONG_WORDS, {"max_characters": 300, "filters": ((3, 50),)}),
    ],
    ids=["more-words-than-a-tile", "more-than-256-characters"],
)
def test_character_encoder_equals_the_reference(
    words: list[str], changes: dict[str, object]
) -> None:
    from elmore.bilm.kernels.characters import encode

    sizes = config(**changes)
    encoder = BiLM(sizes).to(DEVICE).encode
    ids = encode_words(words, sizes.max_characters).to(DEVICE)
    results = []
    for run in (encoder, partial(encode, encoder)):
        encoder.zero_grad()
        output = run(ids)
        output.backward(torch.linspace(-1, 1, output.numel(), device=DEVICE).view_as(output))
        results.append([output, *(p.grad for p in encoder.parameters())])
    for expected, actual in zip(*results, strict=True):
        assert relative_error(actual, expected) < 1e-4


@pytest.mark.parametrize("sampled", [range(300), range(300, 310)], ids=["all", "none"])
def test_sampled_softmax_equals_the_reference_with_all_or_no_targets_sampled(
    sampled: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    softmax = Softmax(dim=24, vocab_size=310).to(DEVICE)
    negatives = Negatives(torch.tensor(sampled, device=DEVICE), torch.tensor(500.0, device=DEVICE))
    targets = torch.randint(300, (40,), device=DEVICE)
    h = torch.randn(40, 24, device=DEVICE, requires_grad=True)
    results = []
    for use_kernels in (False, True):
        monkeypatch.setattr(kernels, "usable", lambda _, value=use_kernels: value)
        softmax.zero_grad()
        h.grad = None
        nll = softmax(h, targets, negatives)
        nll.backward(torch.linspace(1, 2, 40, device=DEVICE))
        results.append([nll, h.grad, softmax.weight.grad, softmax.bias.grad])
    for expected, actual in zip(*results, strict=True):
        assert relative_error(actual, expected) < 1e-4
