"""A warning about text in a script that a model has hardly seen."""

import unicodedata
from collections.abc import Iterable, Iterator

from elmore.errors import warn_user

# Languages whose text is in Latin letters only. Text in other languages often has Latin words, too,
# so for their models no script is unexpected.
_LATIN = """
    af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv ms nb nl nn no pl pt ro sk sl sq
    sv sw tr vi
""".split()  # noqa: SIM905
_MIN_LETTERS = 10
"""Shorter text may be a single name."""
_MAX_LETTERS = 1000
"""Letters at the start of a text that are examined."""


def warn_about_script(sentences: Iterable[list[str]], language: str | None) -> Iterator[list[str]]:
    """Yield the sentences; warn if most letters are not Latin, but those of the language are.

    Digits, punctuation, symbols and emoji do not count.

    Args:
        sentences: Tokenized sentences.
        language: Language of the model, if known.
    """
    remaining = iter(sentences)
    if language in _LATIN:
        letters = ""
        for words in remaining:
            yield words
            letters += "".join(filter(str.isalpha, "".join(words)))
            if len(letters) >= _MAX_LETTERS:
                break
        if len(letters) >= _MIN_LETTERS and 2 * sum(map(_is_latin, letters)) < len(letters):
            warn_user(  # with the same text for all input: Python shows it only once
                f"most letters of the text are not Latin. The model was trained on text in the "
                f"language {language} and has hardly seen this script, so its vectors are of "
                "little use. Choose a model for the language of the text.",
            )
    yield from remaining


def _is_latin(letter: str) -> bool:
    return letter.isascii() or unicodedata.name(letter, "").startswith("LATIN")
