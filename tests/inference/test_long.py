"""Long sentences in chunks. Oracle: the plain biLM on the whole sentence."""

import numpy as np
import pytest
import torch

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM, BiLMState
from elmore.embedder import Embedder
from elmore.inference import long
from elmore.inference.engine import TokenRows
from elmore.inference.long import run_batch
from elmore.text.characters import encode_words
from tests.inference.conftest import make_case
from tests.inference.test_engines import ENGINES, MakeEngine

LETTERS = "ACDEFGHIKLMNPQRSTVWY"


def some_residues(count: int) -> list[str]:
    return [LETTERS[i] for i in np.random.default_rng(0).integers(len(LETTERS), size=count)]


@pytest.fixture(params=[1, 5, 7, 100])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of more than 12 words are computed in chunks, of different sizes."""
    monkeypatch.setattr(long, "_CHUNK", request.param)
    monkeypatch.setattr(long, "LONG", 12)


@torch.no_grad()
@pytest.mark.parametrize("make_engine", ENGINES)
def test_chunks_give_the_layers_of_the_whole_sentence(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long, "LONG", 8)
    monkeypatch.setattr(long, "_CHUNK", 4)
    bilm = BiLM(BiLMConfig.tiny()).eval()
    case = make_case(bilm, encode_words, [some_residues(9)])
    expected = case.words_of(case.expected()[0])
    engine = make_engine(bilm)
    table = case.table.to(engine.device)
    start = engine.start_state(table[:2])
    layers = run_batch(engine, TokenRows(table, *case.without_boundaries()), start, lambda x: x)
    torch.testing.assert_close(layers.cpu(), expected, rtol=0, atol=2e-6)


@pytest.mark.usefixtures("chunk")
def test_embedder_gives_equal_vectors_with_and_without_chunks(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    proteins = [some_residues(n) for n in (3, 30, 12, 13, 0, 29)]
    for layers in ("all", "top", "average", "sum", 0):
        in_chunks = list(embedder.stream(proteins, layers=layers, batch_words=12))
        with monkeypatch.context() as patch:
            patch.setattr(long, "LONG", 1000)
            expected = embedder.embed(proteins, layers=layers)
        for (_, vectors), whole in zip(in_chunks, expected, strict=True):
            np.testing.assert_allclose(vectors, whole, rtol=0, atol=2e-6)


def test_memory_beside_the_result_does_not_grow_with_the_length(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the number of words that the engine is given at once."""
    monkeypatch.setattr(long, "LONG", 12)
    monkeypatch.setattr(long, "_CHUNK", 8)
    engine = embedder._runner.engine
    run, words = engine.run_with_state, []

    def count(tokens: TokenRows, *args: BiLMState) -> object:
        words.append(len(tokens.rows))
        return run(tokens, *args)

    monkeypatch.setattr(engine, "run_with_state", count)
    [(_, vectors)] = embedder.stream([some_residues(500)], layers="sum")
    assert vectors.shape == (500, 32)
    assert max(words) <= 2 * 8
    assert sum(words) == 2 * 500
