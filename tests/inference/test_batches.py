"""Batches and streaming. Oracles: `Embedder.embed`; for a GPU, the vectors of a CPU."""

import random
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import elmore
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.inference import batches
from elmore.inference.batches import Batch, SentenceRunner, split
from elmore.inference.fetch import Fetcher
from elmore.inference.long import Select
from elmore.inference.word_cache import WordCache

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def random_sentences(count: int) -> list[list[str]]:
    rng = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    return [rng.choices(words, k=rng.randrange(0, 30)) for _ in range(count)]


def test_split_keeps_the_order_of_sentences() -> None:
    sentences = random_sentences(50)
    for max_words in (1, 60, 10_000):
        split_batches = list(split(sentences, max_words))
        assert [s for batch in split_batches for s in batch.sentences()] == sentences
        assert all(len(b.words) + 2 * len(b.lengths) < max_words + 32 for b in split_batches)
    assert list(split([], 10)) == []
    assert list(split([[], ["a"]], 10)) == [Batch(["a"], [0, 1])]


def test_split_puts_long_sentences_in_batches_of_their_own() -> None:
    short, long = ["a"], ["b"] * 11
    batches = list(split([short, short, long, long, short], 10))
    assert [batch.lengths for batch in batches] == [[1, 1], [11], [11], [1]]


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("carry_state", [False, True])
def test_streamed_vectors_equal_those_of_embed(
    embedder: Embedder, ahead: int, carry_state: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = random_sentences(30)
    expected = embedder.embed(sentences, carry_state=carry_state)
    monkeypatch.setitem(batches._BATCHES_AHEAD, "cpu", ahead)
    streamed = list(embedder.stream(sentences, carry_state=carry_state, batch_words=40))
    assert [tokens for tokens, _ in streamed] == sentences
    for (_, a), b in zip(streamed, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("ahead", [0, 2])
def test_stream_continues_from_the_start_of_any_window_with_the_same_bits(
    embedder: Embedder, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the vectors of the whole text."""
    monkeypatch.setitem(batches._BATCHES_AHEAD, "cpu", ahead)
    monkeypatch.setattr(batches, "WINDOW_WORDS", 80)
    monkeypatch.setitem(elmore.embedder._BATCH_WORDS, "cpu", 40)
    sentences = random_sentences(40)
    expected = list(embedder.stream_windows(sentences))
    assert [index for index, _, _ in expected] == list(range(40))
    assert [tokens for _, _, (tokens, _) in expected] == sentences
    for (_, _, (_, a)), b in zip(expected, embedder.embed(sentences), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert len({window_start for _, window_start, _ in expected}) > 4
    run = SentenceRunner._run
    computed: list[int] = []

    def count_and_run(
        self: SentenceRunner, batch: Batch, words: WordCache[str], select: Select
    ) -> torch.Tensor:
        computed.append(len(batch.lengths))
        return run(self, batch, words, select)

    monkeypatch.setattr(SentenceRunner, "_run", count_and_run)
    longest = max(len(batch.lengths) for batch in split(sentences, 40))
    for next_index in range(1, 40, 3):
        start = expected[next_index - 1][1]
        computed.clear()
        rest = embedder.stream_windows(sentences[start:], skip=next_index - start)
        for (i, window, (_, a)), (j, other_window, (_, b)) in zip(
            rest, expected[next_index:], strict=True
        ):
            assert (start + i, start + window) == (j, other_window)
            assert a.tobytes() == b.tobytes()
        assert sum(computed) < 40 - next_index + longest  # others are only read


@pytest.mark.parametrize("ahead", [0, 2])
def test_stream_reads_only_a_few_batches_ahead(
    embedder: Embedder, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(batches._BATCHES_AHEAD, "cpu", ahead)
    read = 0

    def endless() -> Iterator[list[str]]:
        nonlocal read
        while True:
            read += 1
            yield ["word"] * 8

    stream = embedder.stream(endless(), batch_words=40)
    assert next(stream).vectors.shape == (3, 8, 32)
    assert read <= 4 * (ahead + 1)


def test_failed_copy_raises_in_the_caller(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(Fetcher, "start", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        next(embedder.stream([["word"]]))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("layers", ["all", "top"])
def test_gpu_vectors_equal_cpu_vectors(layers) -> None:
    bilm = BiLM(BiLMConfig(dim=64, cell_dim=256))
    sentences = [*random_sentences(300), ["long"] * 2000]
    expected = Embedder(bilm, device="cpu").embed(sentences, layers=layers)
    carried = Embedder(bilm, device="cpu").embed(sentences[:9], layers=layers, carry_state=True)
    for precision, bound in (("fp32", 1e-5), ("bf16", 0.05)):
        embedder = Embedder(bilm, device="cuda", precision=precision)
        for batch_words in (100, 1000, None, None, None):
            actual = embedder.embed(sentences, layers=layers, batch_words=batch_words)
            for a, b in zip(actual, expected, strict=True):
                assert a.flags.owndata
                np.testing.assert_allclose(a, b, atol=bound)
        actual = embedder.embed(sentences[:9], layers=layers, carry_state=True)
        for a, b in zip(actual, carried, strict=True):
            np.testing.assert_allclose(a, b, atol=bound)
    assert not next(bilm.parameters()).is_cuda
    assert bilm.training


@pytest.mark.gpu
@needs_gpu
def test_vectors_are_not_overwritten_if_the_caller_is_slow() -> None:
    """The device computes the next batches while the caller still holds these vectors."""
    embedder = Embedder(BiLM(BiLMConfig.tiny()), device="cuda")
    sentences = random_sentences(200)
    expected = embedder.embed(sentences, batch_words=200)
    kept = []
    for _, vectors in embedder.stream(sentences, batch_words=200):
        time.sleep(0.002)
        kept.append(vectors)
    for a, b in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(a, b)
