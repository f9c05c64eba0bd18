"""Oracle: the embedder itself, sentence by sentence."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.tasks.layers import LayerTable

SENTENCES = [["He", "sat", "by", "the", "bank"], ["Banks", "fail"], [], ["He", "sat"]]


def expected(embedder: Embedder, sentences: list[list[str]]) -> np.ndarray:
    longest = max(1, *map(len, sentences))
    result = np.zeros((len(sentences), embedder.num_layers, longest, embedder.dim), np.float32)
    for row, words in zip(result, sentences, strict=True):
        if words:
            row[:, : len(words)] = embedder.embed([words])[0]
    return result


def test_kept_layers_are_those_of_the_embedder(embedder: Embedder) -> None:
    table = LayerTable(embedder)
    table.prepare([*SENTENCES, SENTENCES[0]])
    for some in (SENTENCES, SENTENCES[::-1], SENTENCES[1:2], [[]]):
        found = table([[words] for words in some])
        assert found.dtype == torch.float32
        # Kept in half precision: eleven bits.
        np.testing.assert_allclose(found, expected(embedder, some), rtol=1e-3, atol=1e-6)


def test_what_was_not_prepared_is_computed(embedder: Embedder) -> None:
    table = LayerTable(embedder)
    table.prepare(SENTENCES[:1])
    new = [SENTENCES[0], ["a", "new", "one"], []]
    found = table([[words] for words in new])
    np.testing.assert_allclose(found, expected(embedder, new), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("prepared", [True, False])
def test_the_sentences_of_a_text_are_read_one_by_one(embedder: Embedder, prepared: bool) -> None:
    table = LayerTable(embedder)
    if prepared:
        table.prepare(SENTENCES)
    found = table([SENTENCES[:2], SENTENCES[2:]])
    first, second = (np.concatenate(embedder.embed(s), 1) for s in (SENTENCES[:2], SENTENCES[3:]))
    np.testing.assert_allclose(found[0], first, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found[1, :, :2], second, rtol=1e-3, atol=1e-6)
    assert not found[1, :, 2:].any()


def test_a_sentence_is_computed_once(embedder: Embedder) -> None:
    seen = []

    def watch(stream):
        for item in stream:
            seen.append(item)
            yield item

    LayerTable(embedder).prepare([["a"], ["b"], ["a"], ["a"]], watch)
    assert sorted(seen) == [["a"], ["b"]]


def test_a_table_larger_than_the_disk_is_refused(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(InputError, match="a larger disk in the variable TMPDIR"):
        LayerTable(embedder).prepare(SENTENCES)
