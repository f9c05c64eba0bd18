"""The word cache. Oracle: each word encoded separately."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmore.bilm.model import BiLM
from elmore.inference import reference, word_cache
from elmore.inference.reference import ReferenceEngine
from elmore.inference.word_cache import WordCache
from elmore.text.characters import encode_words


def assert_vectors_of(words: list[str], cache: WordCache[str], bilm: BiLM) -> None:
    table, rows, lengths = cache.look_up(words)
    assert lengths.tolist() == [len(words)]  # one sentence, unless told otherwise
    expected = [bilm.encode(encode_words([word]))[0] for word in words]
    assert len(rows) == len(expected)
    for row, vector in zip(rows, expected, strict=True):
        torch.testing.assert_close(table[row], vector, rtol=0, atol=1e-6)


@given(st.lists(st.lists(st.text(max_size=60), max_size=12), max_size=6), st.integers(1, 20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@torch.no_grad()
def test_row_holds_the_vector_of_its_word(bilm: BiLM, calls: list[list[str]], size: int) -> None:
    """Tables are full after a few calls, and some calls have more words than a table has rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_cache, "_MAX_ROWS", size)
        patch.setattr(reference, "_ENCODED_AT_ONCE", 5)
        cache = WordCache(ReferenceEngine(bilm), encode_words)
        for words in calls:
            assert_vectors_of(words, cache, bilm)


@torch.no_grad()
def test_rows_stay_valid_when_the_table_is_replaced(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_cache, "_MAX_ROWS", 3)
    cache = WordCache(ReferenceEngine(bilm), encode_words)
    table, rows, _ = cache.look_up(["a", "b"])
    before = table[rows.tolist()].clone()
    cache.look_up(["c", "d", "e"])
    assert torch.equal(table[rows.tolist()], before)


@torch.no_grad()
def test_table_grows_only_for_calls_with_too_many_words(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_cache, "_MAX_ROWS", 10)
    cache = WordCache(ReferenceEngine(bilm), encode_words)
    assert len(cache.look_up([f"word{n}" for n in range(50)]).table) == 50
    assert len(cache.look_up(["another"]).table) == 10


@torch.no_grad()
def test_words_with_equal_ids_share_a_row(bilm: BiLM) -> None:
    """Two words that are truncated to the same bytes, in one call and in two."""
    cache = WordCache(ReferenceEngine(bilm), partial(encode_words, warn=False))
    first, second, third = (50 * "x" + letter for letter in "abc")
    assert cache.look_up(["bank", first, second]).rows.tolist() == [0, 1, 1]
    assert cache.look_up([third, "river"]).rows.tolist() == [1, 2]


@torch.no_grad()
def test_word_is_not_cached_if_encoding_it_fails(bilm: BiLM) -> None:
    cache = WordCache(ReferenceEngine(bilm), encode_words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReferenceEngine, "encode", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cache.look_up(["bank"])
    assert_vectors_of(["bank"], cache, bilm)


@torch.no_grad()
def test_threads_can_share_a_cache(bilm: BiLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "_MAX_ROWS", 10)  # often full and replaced
    cache = WordCache(ReferenceEngine(bilm), encode_words)
    calls = [[f"word{n * k % 37}" for n in range(20)] for k in range(40)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda words: assert_vectors_of(words, cache, bilm), calls))
