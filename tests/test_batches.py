"""Oracle: the same sentences in padded groups, and one by one."""

import random
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from elmore import batches
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.streams import StreamedBiLM
from elmore.embedder import Embedder

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def streamed(bilm: BiLM, monkeypatch: pytest.MonkeyPatch) -> Embedder:
    """An embedder that runs over streams as on a GPU, but here."""
    embedder = Embedder(bilm, device="cpu")
    twin = StreamedBiLM(bilm)
    monkeypatch.setattr(embedder, "_fast", lambda: twin)
    return embedder


def many_sentences(count: int) -> list[list[str]]:
    draw = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    return [draw.choices(words, k=draw.randrange(0, 30)) for _ in range(count)]


@pytest.mark.parametrize("layers", ["all", "top", "average", 0])
@pytest.mark.parametrize("batch_words", [1, 50, 300, 100_000])
def test_streams_give_what_groups_give(
    embedder: Embedder, streamed: Embedder, layers, batch_words: int
) -> None:
    sentences = many_sentences(60)
    expected = embedder.embed(sentences, layers=layers)
    found = streamed.embed(sentences, layers=layers, batch_words=batch_words)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_nothing_in_nothing_out(streamed: Embedder) -> None:
    assert streamed.embed([]) == []
    assert [v.shape for v in streamed.embed([[], []])] == [(3, 0, 32), (3, 0, 32)]
    assert streamed.embed([[]], layers="top")[0].shape == (0, 32)


def test_carried_state_is_the_same_in_both(embedder: Embedder, streamed: Embedder) -> None:
    sentences = many_sentences(5)
    for a, b in zip(
        streamed.embed(sentences, carry_state=True),
        embedder.embed(sentences, carry_state=True),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("which", ["embedder", "streamed"])
def test_vectors_come_in_the_type_that_is_asked_for(
    which: str, request: pytest.FixtureRequest
) -> None:
    embedder: Embedder = request.getfixturevalue(which)
    sentences = many_sentences(5)
    for a, b in zip(
        embedder.embed(sentences, dtype="float16"), embedder.embed(sentences), strict=True
    ):
        assert a.dtype == np.float16
        np.testing.assert_array_equal(a, b.astype(np.float16))


def test_streams_read_a_few_batches_ahead_and_no_further(streamed: Embedder) -> None:
    read = 0

    def endless() -> Iterator[list[str]]:
        nonlocal read
        while True:
            read += 1
            yield ["word"] * 8

    stream = streamed.stream(endless(), batch_words=40)
    assert next(stream).vectors.shape == (3, 8, 32)
    assert read <= 4 * (batches._BATCHES_AHEAD + 1)
    stream.close()


def test_a_failure_comes_out_where_vectors_are_asked_for(
    streamed: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: torch.Tensor) -> np.ndarray:
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch.Tensor, "numpy", broken)
    with pytest.raises(RuntimeError, match="no memory"):
        next(streamed.stream([["word"]]))


def test_all_layers_of_a_sentence_come_together() -> None:
    layers = torch.tensor([[[1], [2], [3]], [[10], [20], [30]]])
    found = batches.by_sentence(layers, [2, 0, 1])
    assert found.flatten().tolist() == [1, 2, 10, 20, 3, 30]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("layers", ["all", "top"])
def test_a_gpu_gives_what_a_cpu_gives(layers) -> None:
    bilm = BiLM(BiLMConfig(dim=64, cell_dim=256))
    sentences = [*many_sentences(300), ["long"] * 2000]
    expected = Embedder(bilm, device="cpu").embed(sentences, layers=layers)
    for precision, bound in (("fp32", 1e-5), ("bf16", 0.05)):
        embedder = Embedder(bilm, device="cuda", precision=precision)
        for batch_words in (100, 1000, None):
            found = embedder.embed(sentences, layers=layers, batch_words=batch_words)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, atol=bound)


@pytest.mark.gpu
@needs_gpu
def test_a_slow_caller_gets_the_same() -> None:
    """What the device computes next must not reach what the caller still has."""
    embedder = Embedder(BiLM(BiLMConfig.tiny()), device="cuda")
    sentences = many_sentences(200)
    expected = embedder.embed(sentences, batch_words=200)
    kept = []
    for _, vectors in embedder.stream(sentences, batch_words=200):
        time.sleep(0.002)
        kept.append(vectors)
    for a, b in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_dropout_is_off_until_the_last_of_several_is_done(bilm: BiLM) -> None:
    for training in (True, False):
        bilm.train(training)
        first, second = batches._evaluating(bilm), batches._evaluating(bilm)
        with first:
            second.__enter__()
            assert not bilm.training
        assert not bilm.training
        second.__exit__(None, None, None)
        assert bilm.training == training


def test_reading_on_has_no_dropout(bilm: BiLM) -> None:
    """Oracle: the same twice, from a biLM that is training."""
    embedder = Embedder(bilm.train(), device="cpu")
    first, second = (embedder.embed([["a", "b"]], carry_state=True)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert bilm.training
