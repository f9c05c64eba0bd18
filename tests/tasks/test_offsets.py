"""Character offsets. Oracles: offsets by hand; the text of each token."""

import unicodedata

import pytest

from elmore.tasks.offsets import token_offsets
from elmore.tasks.treebank import treebank_tokens
from elmore.text.tokenize import get_tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "Ada Lovelace lived in London.",
        "  It doesn't  work\t(at all) .",
        "caf\u00e9s, na\u00efve; \uae40\uc5f0\uc544\ub294 \uc190\ud765\ubbfc",
        "a a a aa a",
    ],
)
def test_offsets_give_the_text_of_each_token(text: str) -> None:
    tokens = treebank_tokens(text, get_tokenizer())
    assert [text[start:end] for start, end in token_offsets(text, tokens)] == tokens


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("a -LRB- b -RRB-", ["a", "(", "b", ")"], ["a", "-LRB-", "b", "-RRB-"]),
        ("-LRB- -LSB- b", ["(", "[", "b"], ["-LRB- -LSB-", "-LRB- -LSB-", "b"]),
        ("1\\/2 ``x''", ["1/2", '"', "x", '"'], ["1\\/2", "``", "x", "''"]),
        ("She [gave] it", ["She", "gave", "it"], ["She", "gave", "it"]),
        ("x\x07y z", ["xy", "z"], ["x\x07y", "z"]),
        (
            "cafe\u0301s et the\u0301",
            ["caf\u00e9s", "et", "th\u00e9"],
            ["cafe\u0301s", "et", "the\u0301"],
        ),
        ("a\ufb01b xy", ["afib", "xy"], ["a\ufb01b", "xy"]),
        ("\u2026a b\u2026", ["...a", "b..."], ["\u2026a", "b\u2026"]),
        ("New York left", ["New York", "left"], ["New York", "left"]),
        ("", ["a"], [""]),
        ("x", [], []),
    ],
)
def test_changed_characters_keep_the_other_offsets(
    text: str, tokens: list[str], expected: list[str]
) -> None:
    assert [text[start:end] for start, end in token_offsets(text, tokens)] == expected


def test_decomposed_hangul() -> None:
    tokens = ["\uae40\uc5f0\uc544\ub294", "\uc190\ud765\ubbfc", "."]
    text = unicodedata.normalize("NFD", f"{tokens[0]} {tokens[1]}.")
    spans = [text[start:end] for start, end in token_offsets(text, tokens)]
    assert [unicodedata.normalize("NFC", span) for span in spans] == tokens
