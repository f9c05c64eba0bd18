"""Tokenizers. Oracles: sacremoses; spaCy; the conventions of the 1 Billion Word Benchmark."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import FrameType
from typing import Any

import pytest
import spacy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

import elmore
from elmore.errors import InputError, MissingExtraError
from elmore.text import tokenize as tokenize_module
from elmore.text.lines import read_lines
from tests.conftest import SHARED

SACREMOSES = MosesTokenizer(lang="en")
SPACY = {language: spacy.blank(language) for language in ("en", "de")}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("He doesn't know.", ["He", "doesn", "'t", "know", "."]),
        ("It's Smith & Sons", ["It", "'s", "Smith", "&", "Sons"]),
        ("a five-year-old child", ["a", "five-year-old", "child"]),
        ('He said "no".', ["He", "said", '"', "no", '"', "."]),
        ("Mr. Jones paid $3.50, twice", ["Mr.", "Jones", "paid", "$", "3.50", ",", "twice"]),
        ("x < y [sic] | z", ["x", "<", "y", "[", "sic", "]", "|", "z"]),
        ("", []),
        ("   ", []),
    ],
)
def test_moses_conventions_without_escapes(text: str, tokens: list[str]) -> None:
    assert elmore.tokenize(text) == tokens


@pytest.mark.parametrize("language", ["english", "EN", "e", "", "de-DE"])
@pytest.mark.parametrize("tokenizer", ["moses", "whitespace", "spacy"])
def test_invalid_language_code_is_rejected(tokenizer, language: str) -> None:
    with pytest.raises(InputError, match="language must be an ISO 639 code like en or de"):
        elmore.tokenize("a", tokenizer, language)


def test_whitespace_tokenizer_splits_only_at_whitespace() -> None:
    assert elmore.tokenize(" don 't\tstop ", "whitespace") == ["don", "'t", "stop"]


PUNCTUATED_TEXT = st.text(
    st.sampled_from("aAbsDe .,'`-019$%\"()&;:?!/[]|<>\u00e9\u4e2d\u00a0\u2019\u00aa")
)


@given(PUNCTUATED_TEXT | st.text())
@example("Mr. smith vs. 3 No. 5 No. x e.g. it's 'quoted' end.")
@settings(max_examples=500)
def test_moses_equals_sacremoses(text: str) -> None:
    assert elmore.tokenize(text) == SACREMOSES.tokenize(text, escape=False)


def test_moses_equals_sacremoses_on_real_text() -> None:
    path = SHARED / "corpus" / "valid.txt.xz"
    if not path.exists():
        pytest.skip("needs the held-out corpus")
    for line in islice(read_lines(path), 1000):
        assert elmore.tokenize(line) == SACREMOSES.tokenize(line, escape=False)


def test_moses_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    split = tokenize_module._Moses("en")
    monkeypatch.setattr(split, "_MAX_CACHED", 3)
    for text in ("it's a b c d.", "it's a b c d. e", "it's"):
        assert split(text) == SACREMOSES.tokenize(text, escape=False)
        assert len(split._alphanumeric) + len(split._in_context) <= 4


def test_threads_can_share_a_moses_tokenizer_while_its_cache_is_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def switch_threads(frame: FrameType, *_: object) -> Any:
        if frame.f_code.co_filename != tokenize_module.__file__:
            return None
        time.sleep(1e-6)  # releases the GIL before every line of the tokenizer
        return switch_threads

    split = tokenize_module._Moses("en")
    monkeypatch.setattr(split, "_MAX_CACHED", 1)
    texts = ["it's a b, c d.", "(e) f! it's g"] * 20
    expected = [SACREMOSES.tokenize(text, escape=False) for text in texts]
    previous = threading.gettrace()
    threading.settrace(switch_threads)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(split, texts)) == expected
    finally:
        threading.settrace(previous)


@given(st.text())
@pytest.mark.parametrize("tokenizer", ["moses", "whitespace"])
def test_tokens_are_not_empty_and_contain_no_space(tokenizer: str, text: str) -> None:
    for token in elmore.tokenize(text, tokenizer):  # type: ignore[arg-type]
        assert token
        assert " " not in token


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_moses_keeps_all_characters(text: str) -> None:
    assert "".join(elmore.tokenize(text)) == text


def test_unknown_tokenizer_is_rejected() -> None:
    with pytest.raises(InputError, match="unknown tokenizer 'mosses'; expected moses"):
        elmore.tokenize("a", "mosses")  # type: ignore[arg-type]


def test_spacy_splits_hyphens() -> None:
    assert elmore.tokenize("a five-year-old  child", "spacy") == [
        "a", "five", "-", "year", "-", "old", "child",
    ]  # fmt: skip


@pytest.mark.parametrize("language", SPACY)
@given(PUNCTUATED_TEXT | st.text())
@settings(deadline=None)  # the first call loads the rules of the language
def test_spacy_tokenizer_equals_spacy_without_whitespace_tokens(language: str, text: str) -> None:
    expected = [token.text for token in SPACY[language](text) if not token.is_space]
    assert elmore.tokenize(text, "spacy", language) == expected


def test_missing_spacy_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r'pip install "elmore\[spacy\]"'):
        elmore.tokenize("a", "spacy", language="xx")


@pytest.mark.parametrize(
    ("language", "reason"), [("qq", "Can't import language qq"), ("th", "requires the PyThaiNLP")]
)
def test_language_without_spacy_support_is_rejected(language: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"tokenize the language '{language}': .*{reason}"):
        elmore.tokenize("a", "spacy", language)
