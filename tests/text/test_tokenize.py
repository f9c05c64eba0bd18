"""Oracles: the conventions of the 1 Billion Word Benchmark, by hand; properties of any tokenizer."""

import importlib.util
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import elmore
from elmore.errors import InputError, MissingExtraError


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


def test_whitespace_leaves_tokens_alone() -> None:
    assert elmore.tokenize(" don 't\tstop ", "whitespace") == ["don", "'t", "stop"]


@given(st.text())
@pytest.mark.parametrize("tokenizer", ["moses", "whitespace"])
def test_tokens_are_never_empty_and_hold_no_space(tokenizer: str, text: str) -> None:
    for token in elmore.tokenize(text, tokenizer):  # type: ignore[arg-type]
        assert token
        assert " " not in token


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_moses_only_adds_spaces(text: str) -> None:
    assert "".join(elmore.tokenize(text)) == text


def test_an_unknown_tokenizer_is_named() -> None:
    with pytest.raises(InputError, match="unknown tokenizer 'mosses'; expected moses"):
        elmore.tokenize("a", "mosses")  # type: ignore[arg-type]


def test_spacy_splits_hyphens() -> None:
    pytest.importorskip("spacy")
    assert elmore.tokenize("a five-year-old  child", "spacy") == [
        "a", "five", "-", "year", "-", "old", "child",
    ]  # fmt: skip


def test_without_spacy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("spacy"):
        monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r'pip install "elmore\[spacy\]"'):
        elmore.tokenize("a", "spacy", language="xx")
