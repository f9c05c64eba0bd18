"""Oracles: sacremoses and spaCy on the whole text; the 1 Billion Word Benchmark's conventions."""

import sys
from itertools import islice

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
def test_what_is_no_code_of_a_language_is_refused(tokenizer, language: str) -> None:
    with pytest.raises(InputError, match="language must be an ISO 639 code like en or de"):
        elmore.tokenize("a", tokenizer, language)


def test_whitespace_leaves_tokens_alone() -> None:
    assert elmore.tokenize(" don 't\tstop ", "whitespace") == ["don", "'t", "stop"]


PIECES = st.text(st.sampled_from("aAbsDe .,'`-019$%\"()&;:?!/[]|<>\u00e9\u4e2d\u00a0\u2019\u00aa"))


@given(PIECES | st.text())
@example("Mr. smith vs. 3 No. 5 No. x e.g. it's 'quoted' end.")
@settings(max_examples=500)
def test_moses_is_sacremoses(text: str) -> None:
    assert elmore.tokenize(text) == SACREMOSES.tokenize(text, escape=False)


def test_moses_is_sacremoses_on_real_text() -> None:
    path = SHARED / "corpus" / "valid.txt.xz"
    if not path.exists():
        pytest.skip("the corpus is not on this machine")
    for line in islice(read_lines(path), 1000):
        assert elmore.tokenize(line) == SACREMOSES.tokenize(line, escape=False)


def test_moses_forgets_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    split = tokenize_module._Moses("en")
    monkeypatch.setattr(split, "_MAX_REMEMBERED", 3)
    for text in ("it's a b c d.", "it's a b c d. e", "it's"):
        assert split(text) == SACREMOSES.tokenize(text, escape=False)
        assert len(split._plain) + len(split._other) <= 4


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
    assert elmore.tokenize("a five-year-old  child", "spacy") == [
        "a", "five", "-", "year", "-", "old", "child",
    ]  # fmt: skip


@pytest.mark.parametrize("language", SPACY)
@given(PIECES | st.text())
@settings(deadline=None)  # the first call loads the rules of the language
def test_spacy_is_spacy_without_space_tokens(language: str, text: str) -> None:
    expected = [token.text for token in SPACY[language](text) if not token.is_space]
    assert elmore.tokenize(text, "spacy", language) == expected


def test_without_spacy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r'pip install "elmore\[spacy\]"'):
        elmore.tokenize("a", "spacy", language="xx")


@pytest.mark.parametrize(
    ("language", "reason"), [("qq", "Can't import language qq"), ("th", "requires the PyThaiNLP")]
)
def test_a_language_that_spacy_cannot_tokenize_is_named(language: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"tokenize the language '{language}': .*{reason}"):
        elmore.tokenize("a", "spacy", language)
