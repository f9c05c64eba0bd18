"""Tokens with offsets. Oracles: tokens by hand, Moses where the rules agree, the text itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.qa.tokens import tokenize
from elmore.tasks.spans import Span
from elmore.text.split import split_sentences
from elmore.text.tokenize import tokenize as tokenize_moses


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's $5-10.", "It 's $ 5 - 10 ."),
        ("the 1990s/2000s (about 1,234.5 km2)", "the 1990s / 2000s ( about 1,234.5 km2 )"),
        ("Dr. O'Brien, of the U.S. Army", "Dr. O 'Brien , of the U.S. Army"),
        ("a well-known co-op\u2014or not?", "a well - known co - op \u2014 or not ?"),
        ('He said "don\'t"...', 'He said " don \'t " ...'),
        ("students' rights, the 1960's", "students ' rights , the 1960 's"),
        ("snake_case -- 50% [sic]", "snake _ case -- 50 % [ sic ]"),
        ("3.5.", "3.5 ."),
        ("Beyonc\u00e9\u2019s\u00a0song", "Beyonc\u00e9 \u2019s song"),
        (" \n\t", ""),
    ],
)
def test_tokens_equal_those_split_by_hand(text: str, tokens: str) -> None:
    assert tokenize(text).words == tokens.split()


@pytest.mark.parametrize(
    "text",
    [
        "He doesn't know Ada's mother, who'd said: \"I'll go\".",
        "In 1,200 B.C. the U.S. army lost 3.5 million (or more); nobody won!",
        "Mr. Smith and Dr. Jones paid $5 to the 18th man...",
    ],
)
def test_tokens_equal_moses_where_the_rules_agree(text: str) -> None:
    assert tokenize(text).words == tokenize_moses(text)


@given(st.text())
def test_tokens_cover_everything_but_whitespace(text: str) -> None:
    tokens = tokenize(text)
    offsets = list(zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True))
    assert [text[start:end] for start, end in offsets] == tokens.words
    covered = [c for start, end in offsets for c in range(start, end)]
    assert covered == [c for c, char in enumerate(text) if not char.isspace()]


@given(st.text(alphabet="ab-. ", min_size=1), st.data())
def test_cover_returns_all_overlapping_tokens(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    tokens = tokenize(text)
    overlapping = [
        i
        for i, (s, e) in enumerate(zip(tokens.starts, tokens.ends, strict=True))
        if s < end and e > start
    ]
    first, last = tokens.cover(start, end)
    assert list(range(first, last)) == overlapping


def test_truncate_keeps_the_first_tokens() -> None:
    tokens = tokenize("one two three")
    assert tokens.truncate(3) is tokens
    short = tokens.truncate(2)
    assert short.words == ["one", "two"]
    assert np.array_equal(short.ends, [3, 7])
    assert tokens.text_of(Span(1, 3)) == "two three"
    assert tokens.offsets(Span(1, 3)) == (4, 13)


def test_tokens_are_grouped_by_sentence() -> None:
    tokens = tokenize("Dr. Ada died. She was 36! (Or so.) ")
    expected = ["Dr. Ada died .", "She was 36 !", "( Or so . )"]
    assert [" ".join(words) for words in tokens.sentences] == expected
    assert tokens.truncate(6).sentences == [expected[0].split(), ["She", "was"]]
    assert tokens.truncate(4).sentences == [expected[0].split()]
    assert tokenize(" ").sentences == []


@given(st.text(alphabet="aB.! \n"))
def test_sentences_equal_the_sentence_splitter(text: str) -> None:
    expected = [tokenize(sentence).words for sentence in split_sentences(text)]
    assert [words for words in expected if words] == tokenize(text).sentences
