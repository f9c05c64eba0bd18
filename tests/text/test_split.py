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


@given(st.text(st.sampled_from("aB .!?\"')(\u3002\u201d3\n")) | st.text())
def test_only_whitespace_is_removed(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_time_is_linear_in_the_length_of_a_word() -> None:
    """An unbounded search for the word before each period would take quadratic time: minutes."""
    text = "x" * 400_000 + ". " + "Mr. A " * 50_000
    start = time.process_time()
    assert len(split_sentences(text)) == 2
    assert time.process_time() - start < 10
