"""Sentence splitting. Oracles: sentences split by hand; the text without whitespace."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.text.split import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. Smith met Dr. Jones. They left.", ["Mr. Smith met Dr. Jones.", "They left."]),
        ("J. R. Smith of the U.S. Army wrote it.", ["J. R. Smith of the U.S. Army wrote it."]),
        ('"Stop!" he said. "Why?" "No."', ['"Stop!" he said.', '"Why?"', '"No."']),
        ("See No. 5 of pp. 3 to 9. No. It ends.", ["See No. 5 of pp. 3 to 9.", "No.", "It ends."]),
        ("It cost 3.50. 12 men paid.", ["It cost 3.50.", "12 men paid."]),
        (
            "He waited... then left. (She stayed.) End",
            ["He waited... then left.", "(She stayed.)", "End"],
        ),
        (
            "\u4e2d\u6587\u3002\u7b2c\u4e8c\u53e5\uff01",
            ["\u4e2d\u6587\u3002", "\u7b2c\u4e8c\u53e5\uff01"],
        ),
        ("", []),
        ("  ", []),
    ],
)
def test_sentences_equal_those_split_by_hand(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["그는 조지아 주지사였다.", "1976년에 당선되었다.", "왜?", "인기가 많았다!", "끝."],
        ["원주율은 3.14이다.", "2.5배가 된다."],
        ["2008. 12. 25. 개봉했다.", "1. FC 쾰른은 2. 분데스리가에 있다."],
        ["새 운영 체제이다.", "iOS 7은 2013년에 나왔다."],
        ["호평을 받았다.", "《루퍼》는 흥행했다.", "「법」이다.", "〈시〉와 『책』이다."],
        ["“나는 간다.”라고 말했다.", "그는 갔다."],
        ["E.A. 존슨은 Dr. Kim을 만났다.", "그들은 U.S. 오픈에 갔다."],
    ],
)
def test_korean_sentences_equal_those_split_by_hand(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), "ko") == sentences


@given(st.text(st.sampled_from("aB .!?\"')(\u3002\u201d3\n")) | st.text())
def test_only_whitespace_is_removed(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_time_is_linear_in_the_length_of_a_word() -> None:
    """An unbounded search for the word before each period would take quadratic time: minutes."""
    text = "x" * 400_000 + ". " + "Mr. A " * 50_000
    start = time.process_time()
    assert len(split_sentences(text)) == 2
    assert time.process_time() - start < 10
