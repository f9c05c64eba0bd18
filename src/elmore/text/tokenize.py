"""Raw text to tokens.

The released models were trained on Moses-tokenized text without entity escapes, so that is the
default: `don't` becomes `don 't`, `&` stays `&`, and hyphenated words stay whole.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Literal

from elmore.errors import InputError, require

TokenizerName = Literal["moses", "whitespace", "spacy"]
Tokenizer = Callable[[str], list[str]]

_LANGUAGE = re.compile("[a-z]{2,3}")
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")


def tokenize(text: str, tokenizer: TokenizerName = "moses", language: str = "en") -> list[str]:
    """Split a text into tokens.

    Args:
        text: One sentence, or any text.
        tokenizer: `moses` as the released models were trained, `whitespace` for text that is
            tokenized already, `spacy` for the rules that AllenNLP's tasks used.
        language: ISO 639-1 code, for the language-dependent rules of moses and spacy.
    """
    return get_tokenizer(tokenizer, language)(text)


def get_tokenizer(tokenizer: TokenizerName = "moses", language: str = "en") -> Tokenizer:
    """Return the named tokenizer as a function of a text."""
    if not _LANGUAGE.fullmatch(language):  # Moses would take it for one that it has no rules for
        raise InputError(f"language must be an ISO 639 code like en or de, got {language!r}")
    match tokenizer:
        case "moses":
            return _moses(language)
        case "whitespace":
            return str.split
        case "spacy":
            return _spacy(language)
    raise InputError(f"unknown tokenizer {tokenizer!r}; expected moses, whitespace or spacy")


def tokenize_marked(text: str, split: Tokenizer, example: str) -> tuple[list[str], int]:
    """Split a text with one word in brackets; return its tokens, and which one that is.

    Args:
        text: As in `They put on a [play] .`
        split: Text to tokens.
        example: A right one, for messages.
    """
    found = list(_BRACKETS.finditer(text))
    if len(found) != 1:
        raise InputError(
            f"expected one word in brackets, found {len(found)} in {text!r}; "
            f'for example "{example}"'
        )
    word = split(found[0][1])
    if len(word) != 1:
        raise InputError(f"expected one word in the brackets, found {len(word)}: {' '.join(word)}")
    before, after = split(text[: found[0].start()]), split(text[found[0].end() :])
    return [*before, *word, *after], len(before)


@cache
def _moses(language: str) -> Tokenizer:
    return _Moses(language)


class _Moses:
    """sacremoses, remembering what it did to each piece between spaces.

    Moses's rules look no further than the character before a piece and the kind of character
    after it. So a piece is tokenized once for each such surrounding, which is many times faster
    than to do it again and again: most of a text consists of words that came before.
    """

    _MAX_REMEMBERED = 1 << 18

    def __init__(self, language: str) -> None:
        from sacremoses import MosesTokenizer

        self._moses = MosesTokenizer(lang=language)
        self._plain: dict[str, list[str]] = {}
        self._other: dict[tuple[str, str, str], list[str]] = {}
        self._is_lower = cache(self._moses.islower)  # which looks through all of Unicode

    def __call__(self, text: str) -> list[str]:
        pieces = text.split()
        tokens: list[str] = []
        for i, piece in enumerate(pieces):
            tokens += self._plain.get(piece) or self._split(pieces, i)
        return tokens

    def _split(self, pieces: list[str], i: int) -> list[str]:
        piece = pieces[i]
        if len(self._plain) + len(self._other) > self._MAX_REMEMBERED:
            self._plain.clear()
            self._other.clear()
        if piece.isascii() and piece.isalnum():  # no rule splits this
            return self._plain.setdefault(piece, [piece])
        before = "A " if i > 0 else ""
        after = f" {self._kind(pieces[i + 1][0])}" if i + 1 < len(pieces) else ""
        key = (before, piece, after)
        if key not in self._other:
            # Escaping is for Moses's own decoder: ELMo has never seen `&apos;`.
            tokens = self._moses.tokenize(f"{before}{piece}{after}", escape=False)
            self._other[key] = tokens[bool(before) : len(tokens) - bool(after)]
        return self._other[key]

    def _kind(self, char: str) -> str:
        """Return a character that Moses treats as it does this one after a period."""
        if self._is_lower(char):
            return "a"
        return "0" if "0" <= char <= "9" else "A"


@cache
def _spacy(language: str) -> Tokenizer:
    spacy = require("spacy", extra="spacy")
    try:
        spacy_tokenizer = spacy.blank(language).tokenizer
    except ImportError as error:
        raise InputError(f"spaCy can't tokenize the language {language!r}: {error}") from error

    def split(text: str) -> list[str]:
        return [token.text for token in spacy_tokenizer(text) if not token.is_space]

    return split
