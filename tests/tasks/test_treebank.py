"""Penn Treebank tokens. Oracle: sentences tokenized by hand."""

import pytest

from elmore.tasks.treebank import treebank_tokens, unescape
from elmore.text.tokenize import get_tokenizer

MOSES = get_tokenizer("moses")


@pytest.mark.parametrize(
    ("raw", "tokenized"),
    [
        ("He doesn't sing.", "He does n't sing ."),
        ("It's Ann's; they're sure we'll go.", "It 's Ann 's ; they 're sure we 'll go ."),
        ("I can't, won't, CAN'T!", "I ca n't , wo n't , CA N'T !"),
        ('He said "no" (twice).', "He said `` no '' -LRB- twice -RRB- ."),
        ("the boys' hats", "the boys ' hats"),
        ("A plain sentence.", "A plain sentence ."),
        ("", ""),
    ],
)
def test_raw_and_tokenized_text_give_the_same_tokens(raw: str, tokenized: str) -> None:
    expected = [unescape(token) for token in tokenized.split()]
    assert treebank_tokens(raw, MOSES) == expected
    assert treebank_tokens(tokenized, MOSES) == expected
    assert treebank_tokens(" ".join(MOSES(raw)), MOSES) == expected


def test_whitespace_tokens_are_kept() -> None:
    text = "He does n't say `` 's '' -- it 's co-written ... and I don't."
    assert treebank_tokens(text, str.split) == text.replace("``", '"').replace("''", '"').split()


@pytest.mark.parametrize(
    ("token", "expected"),
    [("-LRB-", "("), ("''", '"'), ("1\\/2", "1/2"), ("\\*\\*", "**"), ("-", "-"), ("'s", "'s")],
)
def test_treebank_escapes_are_decoded(token: str, expected: str) -> None:
    assert unescape(token) == expected
