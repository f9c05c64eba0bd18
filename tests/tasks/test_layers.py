"""Oracle: the embedder itself, sentence by sentence."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.tasks.layers import LayerCache

SENTENCES = [["He", "sat", "by", "the", "bank"], ["Banks", "fail"], [], ["He", "sat"]]


def expected(embedder: Embedder, sentences: list[list[str]]) -> np.ndarray:
    longest = max(1, *map(len, sentences))
    result = np.zeros((len(sentences), embedder.num_layers, longest, embedder.dim), np.float32)
    for row, words in zip(result, sentences, strict=True):
        if words:
            row[:, : len(words)] = embedder.embed([words])[0]
    return result


def test_cached_layers_equal_the_embedder(embedder: Embedder) -> None:
    cache = LayerCache(embedder)
    cache.prepare([*SENTENCES, SENTENCES[0]])
    for batch in (SENTENCES, SENTENCES[::-1], SENTENCES[1:2], [[]]):
        layers = cache([[words] for words in batch])
        assert layers.dtype == torch.float32
        # The cache holds float16, which has a precision of eleven bits.
        np.testing.assert_allclose(layers, expected(embedder, batch), rtol=1e-3, atol=1e-6)


def test_layers_of_new_sentences_are_computed(embedder: Embedder) -> None:
    cache = LayerCache(embedder)
    assert not cache([[[]]]).any()
    cache.prepare(SENTENCES[:1])
    new = [SENTENCES[0], ["a", "new", "one"], []]
    layers = cache([[words] for words in new])
    np.testing.assert_allclose(layers, expected(embedder, new), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("prepared", [True, False])
def test_sentences_of_a_text_are_embedded_independently(embedder: Embedder, prepared: bool) -> None:
    cache = LayerCache(embedder)
    if prepared:
        cache.prepare(SENTENCES)
    layers = cache([SENTENCES[:2], SENTENCES[2:]])
    first, second = (np.concatenate(embedder.embed(s), 1) for s in (SENTENCES[:2], SENTENCES[3:]))
    np.testing.assert_allclose(layers[0], first, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(layers[1, :, :2], second, rtol=1e-3, atol=1e-6)
    assert not layers[1, :, 2:].any()


def test_repeated_sentences_are_computed_once(embedder: Embedder) -> None:
    seen = []

    def watch(sentences, total):
        assert total == 2
        for words in sentences:
            seen.append(words)
            yield words

    LayerCache(embedder).prepare([["a"], ["b"], ["a"], ["a"]], watch)
    assert sorted(seen) == [["a"], ["b"]]


def test_cache_larger_than_the_disk_is_refused(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the limit of the kernel on the size of files, which fails like a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(InputError, match="set TMPDIR to a folder on a larger disk"):
            LayerCache(embedder).prepare(SENTENCES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    monkeypatch.delattr("os.posix_fallocate")  # as on macOS
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(InputError, match="set TMPDIR to a folder on a larger disk"):
        LayerCache(embedder).prepare(SENTENCES)
