"""Raw text to tokens.

The default is Moses tokenization without entity escapes, like the training text of the released
models: `don't` becomes `don 't`, `&` stays `&`, and hyphenated words stay whole.
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
    """Split text into tokens.

    Args:
        text: One sentence, or any text.
        tokenizer: `moses` matches the training text of the released models, `whitespace` is for
            text that is already tokenized, `spacy` matches AllenNLP's tasks.
        language: ISO 639-1 code; selects the rules of `moses` and `spacy`.

    Raises:
        InputError: If the tokenizer is unknown, or spaCy does not support the language.
        MissingExtraError: If spaCy is not installed.
    """
    return get_tokenizer(tokenizer, language)(text)


def get_tokenizer(tokenizer: TokenizerName = "moses", language: str = "en") -> Tokenizer:
    """Return a function that splits text into tokens. Raises the errors of `tokenize`."""
    if not _LANGUAGE.fullmatch(language):  # sacremoses would silently use English rules
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
    """Tokenize text with one word in brackets; return the tokens and the index of that word.

    Args:
        text: For example `They put on a [play] .`
        split: Tokenizer.
        example: Valid text to show in error messages.
    """
    brackets = list(_BRACKETS.finditer(text))
    if len(brackets) != 1:
        raise InputError(
            f"expected one word in brackets, found {len(brackets)} in {text!r}; "
            f'for example "{example}"'
        )
    marked = brackets[0]
    word = split(marked[1])
    if len(word) != 1:
        raise InputError(f"expected one word in the brackets, found {len(word)}: {' '.join(word)}")
    before, after = split(text[: marked.start()]), split(text[marked.end() :])
    return [*before, *word, *after], len(before)


@cache
def _moses(language: str) -> Tokenizer:
    return _Moses(language)


class _Moses:
    """sacremoses with a cache of whitespace-separated pieces; threads may share an instance.

    The tokens of a piece depend only on the piece, on whether another piece precedes it, and on
    the kind of character that follows. Most pieces of a text repeat, so the cache makes tokenizing
    many times faster.
    """

    _MAX_CACHED = 1 << 18

    def __init__(self, language: str) -> None:
        from sacremoses import MosesTokenizer

        self._moses = MosesTokenizer(lang=language)
        self._alphanumeric: dict[str, list[str]] = {}
        self._in_context: dict[tuple[str, str, str], list[str]] = {}
        self._is_lower = cache(self._moses.islower)  # slow: builds a set on each call

    def __call__(self, text: str) -> list[str]:
        pieces = text.split()
        tokens: list[str] = []
        for i, piece in enumerate(pieces):
            tokens += self._alphanumeric.get(piece) or self._split(pieces, i)
        return tokens

    def _split(self, pieces: list[str], i: int) -> list[str]:
        piece = pieces[i]
        # Another thread may clear the caches at any time, so each of them is read only once.
        if len(self._alphanumeric) + len(self._in_context) > self._MAX_CACHED:
            self._alphanumeric.clear()
            self._in_context.clear()
        if piece.isascii() and piece.isalnum():  # no rule splits this
            return self._alphanumeric.setdefault(piece, [piece])
        before = "A " if i > 0 else ""
        after = f" {self._kind(pieces[i + 1][0])}" if i + 1 < len(pieces) else ""
        key = (before, piece, after)
        tokens = self._in_context.get(key)
        if tokens is None:
            # ELMo was trained on text without Moses's escapes such as `&apos;`.
            tokens = self._moses.tokenize(f"{before}{piece}{after}", escape=False)
            tokens = tokens[bool(before) : len(tokens) - bool(after)]
            self._in_context[key] = tokens
        return tokens

    def _kind(self, char: str) -> str:
        """Return a character that Moses treats like `char` when it follows a period."""
        if self._is_lower(char):
            return "a"
        return "0" if "0" <= char <= "9" else "A"


@cache
def _spacy(language: str) -> Tokenizer:
    spacy = require("spacy", extra="spacy")
    try:
        spacy_tokenizer = spacy.blank(language).tokenizer
    except ImportError as error:
        raise InputError(f"spaCy cannot tokenize the language {language!r}: {error}") from error

    def split(text: str) -> list[str]:
        return [token.text for token in spacy_tokenizer(text) if not token.is_space]

    return split
