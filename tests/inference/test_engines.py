"""All engines. Oracle: the plain biLM on padded batches, in float32 and float64."""

import copy
from collections.abc import Callable
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.errors import InputError
from elmore.inference import cpu, new_engine
from elmore.inference.cpu import CpuEngine
from elmore.inference.engine import Engine, TokenRows
from elmore.inference.packed import can_pack
from elmore.inference.reference import ReferenceEngine
from elmore.text.characters import encode_words
from tests.cpu import needs_int8, needs_onednn, needs_onednn_bf16
from tests.gpu import DEVICE
from tests.inference.conftest import Case, make_case, random_state

pytestmark = pytest.mark.usefixtures("few_steps")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


def cuda_engine(bilm: BiLM) -> Engine:
    """Return a CUDA engine; without a GPU, run its kernels in Triton's interpreter."""
    if not bilm.config.project_cells:
        pytest.skip("the CUDA engine needs LSTMs with a projection")
    from elmore.inference.cuda import CudaEngine

    engine = CudaEngine(bilm.to(DEVICE))
    if DEVICE == "cpu":
        engine._captured = engine._waves  # type: ignore[assignment]
        engine._exclusive = contextmanager(lambda: iter([None]))  # type: ignore[method-assign]
    return engine


ENGINES = [
    pytest.param(ReferenceEngine, id="reference"),
    pytest.param(CpuEngine, id="cpu", marks=needs_onednn),
    pytest.param(cuda_engine, id="cuda", marks=[pytest.mark.gpu, needs_triton]),
]
MakeEngine = Callable[[BiLM], Engine]
# Engines read token vectors, so variants of the token encoder and of file formats are left out.
lstm_variants = pytest.mark.parametrize(
    "case",
    [
        "usual", "skip off", "no clipping", "one layer", "three layers", "no W_P_0",
        "W_P_0 although square", "word input",
    ],
    indirect=True,
)  # fmt: skip


def assert_accurate(layers: torch.Tensor, case: Case, *, words: bool = False) -> None:
    """Assert that the error is at most three times that of the plain biLM in float32."""
    plain, _ = case.expected()
    double = copy.deepcopy(case.bilm).double()
    exact, _ = case._replace(bilm=double).expected()
    rounding = float((plain - exact).abs().max())
    exact = case.words_of(exact) if words else exact
    torch.testing.assert_close(layers.cpu().double(), exact, rtol=0, atol=3 * rounding + 1e-6)


@lstm_variants
@pytest.mark.parametrize("make_engine", ENGINES)
@torch.no_grad()
def test_layers_and_state_equal_those_of_the_bilm(make_engine: MakeEngine, case: Case) -> None:
    _, expected = case.expected()
    engine = make_engine(copy.deepcopy(case.bilm))
    table = case.table.to(engine.device)
    layers, state = engine.run_with_state(TokenRows(table, case.tokens, case.lengths))
    assert_accurate(layers, case)
    for a, b in zip(state, expected, strict=True):
        torch.testing.assert_close(a.cell.cpu(), b.cell, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(a.output.cpu(), b.output, rtol=1e-5, atol=1e-5)


@lstm_variants
@pytest.mark.parametrize("make_engine", ENGINES)
@torch.no_grad()
def test_words_start_from_the_state_after_the_boundary_token(
    make_engine: MakeEngine, case: Case
) -> None:
    engine = make_engine(copy.deepcopy(case.bilm))
    table = case.table.to(engine.device)
    start = engine.start_state(table[:2])
    words, lengths = case.without_boundaries()
    assert_accurate(engine.run(TokenRows(table, words, lengths), start), case, words=True)


@pytest.mark.parametrize("make_engine", ENGINES)
@torch.no_grad()
def test_given_state_is_used_and_not_changed(make_engine: MakeEngine, tiny: Case) -> None:
    """Sentences without tokens return the state unchanged."""
    engine = make_engine(copy.deepcopy(tiny.bilm))
    state = random_state(tiny.bilm.config, len(tiny.lengths))
    given = [type(s)(*(x.to(engine.device) for x in s)) for s in state]
    table = tiny.table.to(engine.device)
    layers, after = engine.run_with_state(TokenRows(table, tiny.tokens, tiny.lengths), given)
    expected, expected_after = tiny.expected(state)
    torch.testing.assert_close(layers.cpu(), expected, rtol=0, atol=5e-6)
    for a, b in zip(after, expected_after, strict=True):
        torch.testing.assert_close(a.cell.cpu(), b.cell, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(a.output.cpu(), b.output, rtol=1e-5, atol=1e-5)
    no_layers, unchanged = engine.run_with_state(
        TokenRows(table, tiny.tokens[:0], np.zeros(len(tiny.lengths), dtype=np.int64)), given
    )
    assert no_layers.shape == (3, 0, 2 * tiny.bilm.config.dim)
    for a, b, c in zip(unchanged, given, state, strict=True):
        assert torch.equal(a.cell, b.cell)
        assert torch.equal(b.cell.cpu(), c.cell)
        assert torch.equal(a.output, b.output)


@pytest.mark.parametrize("make_engine", ENGINES)
@torch.no_grad()
def test_batches_without_sentences_or_words_give_empty_layers(
    make_engine: MakeEngine, tiny: Case
) -> None:
    engine = make_engine(copy.deepcopy(tiny.bilm))
    table = tiny.table.to(engine.device)
    start = engine.start_state(table[:2])
    for lengths in (np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64)):
        layers = engine.run(TokenRows(table, tiny.tokens[:0], lengths), start)
        assert layers.shape == (3, 0, 2 * tiny.bilm.config.dim)


@pytest.mark.parametrize("make_engine", ENGINES)
@torch.no_grad()
def test_token_vectors_equal_those_of_the_bilm(make_engine: MakeEngine, tiny: Case) -> None:
    ids = encode_words(["the", "river", "", "x" * 60, "강"])
    expected = tiny.bilm.encode(ids)
    engine = make_engine(copy.deepcopy(tiny.bilm))
    torch.testing.assert_close(engine.encode(ids.to(engine.device)).cpu(), expected)


@pytest.mark.parametrize(
    ("dtype", "int8", "min_cosine"),
    [
        pytest.param(torch.bfloat16, False, 0.999, marks=needs_onednn_bf16),
        pytest.param(torch.float32, True, 0.995, marks=needs_int8),
    ],
)
@torch.no_grad()
def test_lower_precision_is_close_to_float32(
    dtype: torch.dtype, int8: bool, min_cosine: float
) -> None:
    bilm = BiLM(BiLMConfig(dim=64, cell_dim=256)).eval()
    for parameter in bilm.parameters():
        parameter *= 1.5  # trained weights are larger than initial ones
    case = make_case(bilm, encode_words)
    expected, _ = case.expected()
    engine = CpuEngine(copy.deepcopy(bilm).to(dtype), int8=int8)
    layers, _ = engine.run_with_state(
        TokenRows(case.table.to(engine.dtype), case.tokens, case.lengths)
    )
    cosine = torch.cosine_similarity(layers.float(), expected, dim=-1)
    assert cosine.min() >= min_cosine
    assert cosine.mean() >= 0.999


def test_new_engine_packs_only_large_models_in_supported_dtypes(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(new_engine(copy.deepcopy(bilm)), ReferenceEngine)
    monkeypatch.setattr(cpu, "_MIN_WEIGHTS", 1)
    packed = isinstance(new_engine(copy.deepcopy(bilm)), CpuEngine)
    assert packed == can_pack()
    assert isinstance(new_engine(copy.deepcopy(bilm).double()), ReferenceEngine)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert isinstance(new_engine(copy.deepcopy(bilm)), ReferenceEngine)
    with pytest.raises(InputError, match="int8 needs an x86 CPU"):
        new_engine(copy.deepcopy(bilm), int8=True)


def test_gpu_engines_cannot_be_used_in_forked_processes(tiny: Case) -> None:
    engine = ReferenceEngine(tiny.bilm)
    engine._pid += 1
    engine.check_process()  # a CPU engine may be used after a fork
    engine.device = torch.device("cuda")
    with pytest.raises(InputError, match="can't be used in a forked process"):
        engine.check_process()
