"""Character ids. Oracle: the ids of the released code, reimplemented in plain Python."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.text.characters import (
    NUM_CHARACTERS,
    SPECIAL_WORDS,
    encode_sentences,
    encode_words,
)
from tests.oracles.released_bilm import raw_ids

WORDS = st.text(st.characters(), max_size=60)  # any code point, including lone surrogates


@given(st.lists(WORDS, max_size=8), st.sampled_from([3, 5, 10, 30, 50]))
def test_ids_of_any_words_equal_the_released_code(words: list[str], width: int) -> None:
    expected = [[i + 1 for i in raw_ids(word, width)] for word in words]
    assert encode_words(words, width).tolist() == expected


@given(st.lists(WORDS, min_size=1, max_size=8))
def test_ids_are_in_range_and_not_padding(words: list[str]) -> None:
    ids = encode_words(words)
    assert ids.shape == (len(words), 50)
    assert ids.min() > 0
    assert ids.max() < NUM_CHARACTERS


def test_ids_of_a_one_letter_word() -> None:
    assert encode_words(["a"])[0, :5].tolist() == [259, 98, 260, 261, 261]


def test_empty_word_is_encoded() -> None:
    assert encode_words([""])[0, :3].tolist() == [259, 260, 261]


def test_only_boundary_tokens_have_special_ids() -> None:
    bos, eos, unknown, lower = encode_words(["<S>", "</S>", "<UNK>", "<s>"])
    assert bos[:4].tolist() == [259, 257, 260, 261]
    assert eos[:4].tolist() == [259, 258, 260, 261]
    assert unknown[1:6].tolist() == [b + 1 for b in b"<UNK>"]
    assert lower[1:4].tolist() == [b + 1 for b in b"<s>"]


def test_words_are_truncated_to_48_bytes_with_a_warning() -> None:
    hangul = "가" * 17  # 51 bytes: 16 syllables fit
    with pytest.warns(UserWarning, match="some tokens are longer than 48 bytes"):
        truncated = encode_words(["a", hangul])[1]
    assert truncated.tolist() == encode_words(["가" * 16])[0].tolist()
    with pytest.warns(UserWarning, match="some tokens are longer than 48 bytes"):
        split = encode_words(["a" + "가" * 16])[0]
    assert split[48] == "가".encode()[1] + 1
    assert split[49] == 260


def test_special_words_are_encoded_as_one_id() -> None:
    ids = encode_words(["<mask>", "<S>"], special=SPECIAL_WORDS | {"<mask>": 250})
    assert ids[0, :4].tolist() == [259, 250, 260, 261]
    assert ids[1, 1] == 257


def test_sentences_get_boundary_tokens_and_zero_padding() -> None:
    batch = encode_sentences([["a", "b"], []])
    assert batch.ids.shape == (2, 4, 50)
    assert batch.mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.word_mask.tolist() == [[True, True], [False, False]]
    assert batch.ids[0].tolist() == encode_words(["<S>", "a", "b", "</S>"]).tolist()
    assert (batch.ids[1, 2:] == 0).all()


def test_empty_list_of_sentences_gives_an_empty_batch() -> None:
    batch = encode_sentences([])
    assert batch.ids.shape == (0, 2, 50)
    assert batch.mask.shape == (0, 2)


def test_string_as_sentence_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"sentence 1 is a string \('two words'\).*elmore.tokenize"):
        encode_sentences([["fine"], "two words"])


@pytest.mark.parametrize("bad", [3, None, {"a", "b"}])
def test_sentence_must_be_a_sequence(bad: object) -> None:
    with pytest.raises(TypeError, match=r"sentence 0 is (int|None|set); expected a list of tokens"):
        encode_sentences([bad])  # type: ignore[list-item]


def test_token_must_be_a_string() -> None:
    with pytest.raises(TypeError, match="sentence 0, token 1 is int"):
        encode_sentences([["a", 7]])  # type: ignore[list-item]


def test_ids_are_int64() -> None:
    assert encode_words(["a"]).dtype == torch.int64
