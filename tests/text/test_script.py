"""The warning about text in an unexpected script. Oracles: handwritten texts."""

import warnings

import pytest

from elmore.text.script import warn_about_script

KOREAN = "\uadf8\ub294 \uac15\uac00\uc5d0 \uc549\uc544 \uc788\uc5c8\ub2e4."
THAI = "\u0e23\u0e34\u0e21\u0e41\u0e21\u0e48 " * 4
CHINESE = "\u4ed6\u5750\u5728\u6cb3\u5cb8\u8fb9\u7b49\u670b\u53cb\u6765"


@pytest.mark.parametrize("text", [KOREAN, THAI, CHINESE, f"NAVER: {KOREAN} 100% :)"])
def test_text_in_another_script_is_reported(text: str) -> None:
    sentences = [text.split()]
    with pytest.warns(UserWarning, match="most letters of the text are not Latin"):
        assert list(warn_about_script(sentences, "en")) == sentences


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("He sat by the bank.", "en"),
        (f"The sentence {CHINESE} means that he sat by a river.", "en"),
        ("\uae40\uc5f0\uc544", "en"),  # a name
        ("https://example.org/?q=%EA%B0%80 if (x != 0) { y += 1; }", "en"),
        ("\u4e00\u4e8c\u4e09 3.14 + 2.71 = 5.85", "en"),
        ("\U0001f600\U0001f680\u2764\ufe0f " * 20, "en"),
        ("\u017b\u00f3\u0142ty s\u0142o\u0144 \u015bpi na \u0142\u0105ce", "pl"),
        ("Ng\u01b0\u1eddi \u1ea5y ng\u1ed3i b\u00ean b\u1edd s\u00f4ng", "vi"),
        (KOREAN, "ko"),
        ("He sat by the bank.", "ko"),
        (KOREAN, None),
        ("", "en"),
    ],
)
def test_other_text_is_not_reported(text: str, language: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(warn_about_script([text.split()], language)) == [text.split()]


def test_one_sentence_in_another_script_is_not_reported() -> None:
    sentences = [
        ["He", "sat", "by", "the", "bank", "."],
        *[KOREAN.split()],
        *[["Then", "left"]] * 2,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(warn_about_script(sentences, "en")) == sentences
