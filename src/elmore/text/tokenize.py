"""Raw text to tokens.

The released models were trained on Moses-tokenized text without entity escapes, so that is the
default: `don't` becomes `don 't`, `&` stays `&`, and hyphenated words stay whole.
"""

from collections.abc import Callable
from functools import cache
from typing import Literal

from elmore.errors import InputError, require

TokenizerName = Literal["moses", "whitespace", "spacy"]
Tokenizer = Callable[[str], list[str]]


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
    match tokenizer:
        case "moses":
            return _moses(language)
        case "whitespace":
            return str.split
        case "spacy":
            return _spacy(language)
    raise InputError(f"unknown tokenizer {tokenizer!r}; expected moses, whitespace or spacy")


@cache
def _moses(language: str) -> Tokenizer:
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)

    def split(text: str) -> list[str]:
        # Escaping is for Moses's own decoder: ELMo has never seen `&apos;`.
        tokens: list[str] = moses.tokenize(text, escape=False)
        return tokens

    return split


@cache
def _spacy(language: str) -> Tokenizer:
    try:
        spacy_tokenizer = require("spacy", extra="spacy").blank(language).tokenizer
    except ImportError as error:
        if error.name == "spacy" or error.__cause__ is not None:
            raise
        raise InputError(f"spaCy has no rules for the language {language!r}") from error

    def split(text: str) -> list[str]:
        return [token.text for token in spacy_tokenizer(text) if not token.is_space]

    return split
