"""Tokenizers. Oracles: sacremoses; spaCy; the conventions of the 1 Billion Word Benchmark; for
Korean, the words of UD Korean GSD.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from types import FrameType
from typing import Any
from unicodedata import category, normalize

import pytest
import spacy
from hypothesis import assume, example, given, settings
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


@pytest.mark.parametrize("language", ["english", "e", "", "de-DE", "xx", "kor"])
@pytest.mark.parametrize("tokenizer", ["moses", "whitespace", "spacy"])
def test_unknown_language_is_rejected(tokenizer, language: str) -> None:
    with pytest.raises(InputError, match=f"unknown language '{language}'.*such as en, de or ko"):
        elmore.tokenize("a", tokenizer, language)


@pytest.mark.parametrize("language", ["zh", "yue", "ja"])
def test_moses_rejects_languages_without_spaces(language: str) -> None:
    with pytest.raises(InputError, match="Use the tokenizer spacy, or split the text"):
        elmore.tokenize("\u6211\u7231\u4f60", "moses", language)
    assert elmore.tokenize("\u6211 \u7231", "whitespace", language) == ["\u6211", "\u7231"]


@pytest.mark.parametrize("tokenizer", ["moses", "spacy"])
def test_text_is_normalized_to_nfc(tokenizer) -> None:
    composed, decomposed = "caf\u00e9, na\u00efve", "cafe\u0301, nai\u0308ve"
    assert elmore.tokenize(decomposed, tokenizer) == elmore.tokenize(composed, tokenizer)
    assert elmore.tokenize(decomposed, "whitespace") == ["cafe\u0301,", "nai\u0308ve"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48.", ["\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48", "."]),
        ("\u0645\u06cc\u200c\u062e\u0648!", ["\u0645\u06cc\u200c\u062e\u0648", "!"]),
        ("x\u0304-axis", ["x\u0304-axis"]),
        ("ok\u2764\ufe0fok", ["ok", "\u2764\ufe0f", "ok"]),
        ("a\x07b, \x01", ["a\x07b", ",", "\x01"]),
        ("DOTDOTMULTI-x, DOTMULTI...", ["DOTDOTMULTI-x", ",", "DOTMULTI", "..."]),
    ],
    ids=["Thai", "Persian", "accent", "emoji", "control", "placeholder"],
)  # fmt: skip
def test_no_character_is_lost_or_separated_from_its_marks(text: str, tokens: list[str]) -> None:
    assert elmore.tokenize(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("나는 배를 먹었다.", ["나는", "배를", "먹었다", "."]),
        ("의사(義士)와 美國", ["의사", "(", "義士", ")", "와", "美國"]),
        ("《책》의 〈시〉", ["《", "책", "》", "의", "〈", "시", "〉"]),
        ("중소ㆍ중견 전함·잠수함", ["중소", "ㆍ", "중견", "전함", "·", "잠수함"]),
        ("A4용지 6,000장은 3.5kg이다.", ["A4용지", "6,000장은", "3.5kg이다", "."]),
        ("나왔다. iOS는 D.C.에", ["나왔다", ".", "iOS는", "D.C.에"]),
        ("있었다.그러나 없다 .또", ["있었다", ".", "그러나", "없다", ".", "또"]),
        ("글쎄..음...ㅠ.ㅠ .5점", ["글쎄", "..", "음", "...", "ㅠ.ㅠ", ".5점"]),
        ("`자유로운' 세르보-크로아티아어", ["`", "자유로운", "'", "세르보-크로아티아어"]),
    ],
)  # fmt: skip
def test_korean_conventions(text: str, tokens: list[str]) -> None:
    assert elmore.tokenize(text, language="ko") == tokens


@given(st.text(st.sampled_from("가다ㅠ美のAb1² .,'`-·《》()%\u0301")) | st.text())
@settings(max_examples=500)
def test_korean_tokens_keep_all_characters_and_split_no_word(text: str) -> None:
    for piece in normalize("NFC", text).split():
        tokens = elmore.tokenize(piece, language="ko")
        assert "".join(tokens) == piece
        for before, after in pairwise(tokens):
            assert not (before[-1].isalnum() and after[0].isalnum()) or "\u318d" in before + after


def test_korean_tokens_equal_the_words_of_ud_gsd() -> None:
    path = SHARED / "tasks" / "ko" / "ko_gsd-ud-dev.conllu.xz"
    if not path.exists():
        pytest.skip("needs UD Korean GSD")
    num_equal = num_sentences = 0
    for sentence in "\n".join(read_lines(path)).split("\n\n"):
        rows = sentence.split("\n")
        text = next(row for row in rows if row.startswith("# text = "))
        words = [row.split("\t")[1] for row in rows if row[:1].isdigit()]
        num_equal += elmore.tokenize(text.removeprefix("# text = "), language="ko") == words
        num_sentences += 1
    # GSD keeps ranges and times whole (70~80, 13:00), and splits runs of periods.
    assert num_equal > 0.95 * num_sentences


def test_whitespace_tokenizer_splits_only_at_whitespace() -> None:
    assert elmore.tokenize(" don 't\tstop ", "whitespace") == ["don", "'t", "stop"]


PUNCTUATED_TEXT = st.text(
    st.sampled_from("aAbsDe .,'`-019$%\"()&;:?!/[]|<>\u00e9\u4e2d\u00a0\u2019\u00aa")
)


@given(PUNCTUATED_TEXT | st.text())
@example("Mr. smith vs. 3 No. 5 No. x e.g. it's 'quoted' end.")
@settings(max_examples=500)
def test_moses_equals_sacremoses_except_for_marks_and_control_characters(text: str) -> None:
    text = normalize("NFC", text)
    assume(not any(category(char)[0] in "MC" for char in text))
    assume("MULTI" not in text)  # sacremoses replaces its own placeholder, elmore keeps it
    assert elmore.tokenize(text) == SACREMOSES.tokenize(text, escape=False)


def test_moses_equals_sacremoses_on_real_text() -> None:
    path = SHARED / "corpus" / "valid.txt.xz"
    if not path.exists():
        pytest.skip("needs the held-out corpus")
    for line in islice(read_lines(path), 1000):
        text = normalize("NFC", line)
        if not any(category(char)[0] in "MC" for char in text):
            assert elmore.tokenize(line) == SACREMOSES.tokenize(text, escape=False)


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


@given(st.text() | st.text(st.sampled_from("DOTMULTI.-a,'\u0301\u0e35\ufe0f\u200d\u2764\x01")))
@settings(max_examples=500)
def test_moses_keeps_all_characters(text: str) -> None:
    assert "".join(elmore.tokenize(text)) == "".join(normalize("NFC", text).split())


@pytest.mark.parametrize("text", [["a b"], None, b"a b"])
def test_text_that_is_not_a_string_is_rejected(text) -> None:
    with pytest.raises(TypeError, match=f"expected one string, got {type(text).__name__}"):
        elmore.tokenize(text)


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
    doc = SPACY[language](normalize("NFC", text))
    expected = [token.text for token in doc if not token.is_space]
    assert elmore.tokenize(text, "spacy", language) == expected


def test_missing_spacy_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r'pip install "elmore\[spacy\]"'):
        elmore.tokenize("a", "spacy", language="fo")


@pytest.mark.parametrize(
    ("language", "reason"), [("aa", "Can't import language aa"), ("th", "requires the PyThaiNLP")]
)
def test_language_without_spacy_support_is_rejected(language: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"tokenize the language '{language}' .*{reason}"):
        elmore.tokenize("a", "spacy", language)
