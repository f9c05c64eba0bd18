"""Oracle: the reference path, layer after layer and direction after direction."""

import pytest
import torch

from elmore.bilm import kernels
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.streams import StreamedBiLM
from tests.gpu import DEVICE, needs_kernels

pytestmark = needs_kernels


def some_bilm(**changes: object) -> BiLM:
    sizes = {"dim": 24, "cell_dim": 96, "cell_clip": 0.5, "projection_clip": 0.4}
    bilm = BiLM(BiLMConfig(**{**sizes, **changes})).to(DEVICE).eval()
    for lstm in (*bilm.forward_lstms, *bilm.backward_lstms):
        for linear in (lstm.input, lstm.recurrent, lstm.project):
            linear.weight.data.mul_(4)  # so that the bounds are met
    return bilm


def both(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch, T: int = 6, B: int = 5
) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = next(bilm.parameters()).dtype
    x = torch.randn(T, 2, B, bilm.config.dim).to(DEVICE, dtype)
    continues = (torch.rand(T, 2, B) < 0.7).to(DEVICE)
    continues[0] = False  # a stream starts with a sentence
    monkeypatch.setattr(kernels, "usable", lambda _: False)
    expected = StreamedBiLM(bilm)._run(x, continues)
    monkeypatch.setattr(kernels, "usable", lambda _: True)
    run = StreamedBiLM(bilm)._run
    found = [run(x, continues) for _ in range(3 if DEVICE == "cuda" else 1)][-1]  # a replay too
    return torch.stack(found), torch.stack(expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"residual": False, "num_layers": 3},
        {"num_layers": 1},
        {"cell_clip": None, "projection_clip": None},
        {"dim": 33, "cell_dim": 70},
        {"dim": 64, "cell_dim": 256},
    ],
    ids=["paper", "no-residual", "one-layer", "no-clip", "odd-sizes", "parts"],
)
@torch.inference_mode()
def test_waves_give_what_layers_give(
    changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, expected = both(some_bilm(**changes), monkeypatch)
    # Weights times four, and no bound in one case: the order of a sum shows in the fifth digit.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=5e-5)


@torch.inference_mode()
def test_bfloat16_stays_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding errors are about as large as those of the reference in bfloat16."""
    bilm = some_bilm(cell_clip=3.0, projection_clip=3.0)
    torch.manual_seed(1)
    _, exact = both(bilm, monkeypatch, T=8, B=8)
    torch.manual_seed(1)
    found, expected = both(bilm.bfloat16(), monkeypatch, T=8, B=8)
    ours, theirs = ((x.float() - exact).norm() for x in (found, expected))
    assert ours < 1.5 * theirs
