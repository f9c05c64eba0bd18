"""Raw text to tokens.

The default is Moses tokenization without entity escapes, like the training text of the released
models: `don't` becomes `don 't`, `&` stays `&`, and hyphenated words stay whole.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Literal, TypeVar, get_args

from elmore.errors import InputError, as_input_error, require, warn_user

TokenizerName = Literal["moses", "whitespace", "spacy"]
Tokenizer = Callable[[str], list[str]]
T = TypeVar("T", bound="TokenizerConfig")

# ISO 639-1, and languages without such a code that Moses or spaCy have rules for.
_LANGUAGES = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz
    ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln
    lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi
    pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
    ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    dsb grc hsb kmr lij mni tdt yue
""".split()  # noqa: SIM905
_WITHOUT_SPACES = ("zh", "yue", "ja")
# Unified Canadian Aboriginal Syllabics: letters without case that stand in for characters that
# sacremoses drops (control characters), splits off (combining marks) or uses itself (DOTMULTI).
_RARE_LETTERS = range(0x1401, 0x166D)
# What to split off in Korean text. The rules of sacremoses split Hanja into single characters, take
# CJK brackets for letters, and take "3.5명이다." for an abbreviation with its period.
_KOREAN_SYMBOL = re.compile(
    r"""
    ( [^\w\s.',\-]
    | [_\u318d]                         # U+318D: a letter of Old Hangul, used as a middle dot
    | (?<=[\uac00-\ud7a3]) \. (?!\.)    # a period after a Hangul syllable
    | (?<!\S) \. (?=[\uac00-\ud7a3])    # or before one: "했다 .그리고"
    )
    """,
    re.VERBOSE,
)
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")


@dataclass(frozen=True, slots=True)
class Tokenization:
    """How a text was tokenized; a model's config.json records it for the training text.

    Raises:
        InputError: If the tokenizer or the language is unknown, or Moses cannot split it.
    """

    tokenizer: TokenizerName = "moses"
    language: str = "en"

    def __post_init__(self) -> None:
        if self.tokenizer not in get_args(TokenizerName):
            raise InputError(
                f"unknown tokenizer {self.tokenizer!r}; expected moses, whitespace or spacy"
            )
        language = str(self.language).lower()
        if language not in _LANGUAGES:  # sacremoses would silently use English rules
            raise InputError(
                f"unknown language {self.language!r}; expected an ISO 639-1 code such as en, de or "
                "ko. For a language without one, use the code of one with similar punctuation."
            )
        object.__setattr__(self, "language", language)  # the dataclass is frozen
        if self.tokenizer == "moses" and self.language in _WITHOUT_SPACES:
            raise InputError(
                f"Moses splits text at spaces, which {self.language!r} does not write between "
                "words. Use the tokenizer spacy, or split the text into words and use whitespace."
            )


def choose_tokenization(
    of_model: Tokenization | None,
    tokenizer: TokenizerName | None = None,
    language: str | None = None,
) -> Tokenization:
    """Return how to tokenize text for a model: like its training text, unless the caller chooses.

    Warns if the choice differs from the known tokenization of a model, except for `whitespace`,
    which is for text that is already tokenized.

    Args:
        of_model: Tokenization of the model's training text, if known.
        tokenizer: The caller's choice, if any.
        language: The caller's choice, if any.
    """
    default = of_model or Tokenization()
    chosen = Tokenization(
        default.tokenizer if tokenizer is None else tokenizer,
        default.language if language is None else language,
    )
    if of_model and chosen != of_model and chosen.tokenizer != "whitespace":
        warn_user(
            f"the model was trained on text that was tokenized by {of_model.tokenizer} for the "
            f"language {of_model.language}; with {chosen.tokenizer} for {chosen.language}, results "
            "may be worse",
        )
    return chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerConfig:
    """Tokenizer and language of raw text. By default, both are those of the model."""

    tokenizer: TokenizerName | None = None
    """`whitespace` is for text that is already tokenized. By default that of the model; `moses` for
    a new one."""

    language: str | None = None
    """ISO 639-1 code; selects the rules of the tokenizer and the sentence splitter. By default that
    of the model; `en` for a new one."""

    def __post_init__(self) -> None:
        # Raises if one is unknown. Without a tokenizer, every language is accepted, because the
        # tokenizer of the model, which is not known yet, may support it.
        Tokenization(self.tokenizer or "whitespace", self.language or "en")

    @property
    def tokenization(self) -> Tokenization:
        """Tokenizer and language, with defaults filled in."""
        return choose_tokenization(None, self.tokenizer, self.language)

    def for_model(self: T, of_model: Tokenization | None) -> T:
        """Fill in the tokenizer and the language of a model; see `choose_tokenization`."""
        return replace(self, **asdict(choose_tokenization(of_model, self.tokenizer, self.language)))


def tokenize(text: str, tokenizer: TokenizerName = "moses", language: str = "en") -> list[str]:
    """Split text into tokens.

    `moses` and `spacy` normalize text to NFC, so that a letter and its accent are one character.

    Args:
        text: One sentence, or any text.
        tokenizer: `moses` matches the training text of the released models, `whitespace` is for
            text that is already tokenized, `spacy` matches AllenNLP's tasks.
        language: ISO 639-1 code; selects the rules of `moses` and `spacy`.

    Raises:
        InputError: If the tokenizer or the language is unknown, or does not support the other.
        MissingExtraError: If spaCy is not installed.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"expected one string, got {type(text).__name__}. For several texts, call tokenize for "
            "each of them."
        )
    return get_tokenizer(tokenizer, language)(text)


def get_tokenizer(tokenizer: TokenizerName | None = None, language: str | None = None) -> Tokenizer:
    """Return a function that splits text into tokens; by default, with Moses for English.

    Raises the errors of `tokenize`.
    """
    chosen = choose_tokenization(None, tokenizer, language)
    match chosen.tokenizer:
        case "moses":
            return _moses(chosen.language)
        case "whitespace":
            return str.split
        case "spacy":
            return _spacy(chosen.language)


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
    _check_whole_word(text, marked, split)
    before, after = split(text[: marked.start()]), split(text[marked.end() :])
    return [*before, *word, *after], len(before)


def _check_whole_word(text: str, marked: re.Match[str], split: Tokenizer) -> None:
    """Raise if the brackets hold a part of a token, such as a Korean noun without its particle."""
    before = re.search(r"\w*$", text[: marked.start()])
    after = re.match(r"\w*", text[marked.end() :])
    joined = f"{before and before[0]}{marked[1]}{after and after[0]}"
    if marked[1].strip() not in split(joined):
        raise InputError(
            f"the brackets hold a part of the word {joined!r}; put them around the whole word: "
            f"[{joined}]"
        )


@cache
def _moses(language: str) -> Tokenizer:
    return _Moses(language)


class _Moses:
    """sacremoses with a cache of whitespace-separated pieces; threads may share an instance.

    The tokens of a piece depend only on the piece, on whether another piece precedes it, and on
    the kind of character that follows. Most pieces of a text repeat, so the cache makes tokenizing
    many times faster.

    Unlike sacremoses, this loses no characters and keeps combining marks with their letter.
    """

    _MAX_CACHED = 1 << 18

    def __init__(self, language: str) -> None:
        from sacremoses import MosesTokenizer

        self._moses = MosesTokenizer(lang=language)
        if language == "ko":
            self._moses.PAD_NOT_ISALNUM = (_KOREAN_SYMBOL, r" \1 ")
        self._alphanumeric: dict[str, list[str]] = {}
        self._in_context: dict[tuple[str, str, str], list[str]] = {}
        self._is_lower = cache(self._moses.islower)  # slow: builds a set on each call

    def __call__(self, text: str) -> list[str]:
        pieces = unicodedata.normalize("NFC", text).split()
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
            tokens = self._split_in_context(*key)
            self._in_context[key] = tokens
        return tokens

    def _split_in_context(self, before: str, piece: str, after: str) -> list[str]:
        marks = "".join({char for char in piece if _is_mark(char)})
        fragile = (*marks, *{char for char in piece if char < " "}, "DOTMULTI")
        letters = (chr(i) for i in _RARE_LETTERS if chr(i) not in piece)
        stand_ins = dict(zip(fragile, letters, strict=False))
        for original, letter in stand_ins.items():
            piece = piece.replace(original, letter)
        # ELMo was trained on text without Moses's escapes such as `&apos;`.
        tokens = self._moses.tokenize(f"{before}{piece}{after}", escape=False)
        tokens = tokens[bool(before) : len(tokens) - bool(after)]
        for original, letter in stand_ins.items():
            tokens = [token.replace(letter, original) for token in tokens]
        for i in range(1, len(tokens)):  # marks of a symbol, which Moses has split off
            word = tokens[i].lstrip(marks)
            tokens[i - 1] += tokens[i][: len(tokens[i]) - len(word)]
            tokens[i] = word
        return [token for token in tokens if token]

    def _kind(self, char: str) -> str:
        """Return a character that Moses treats like `char` when it follows a period."""
        if self._is_lower(char):
            return "a"
        return "0" if "0" <= char <= "9" else "A"


def _is_mark(char: str) -> bool:
    """Whether a character belongs to the one before it: an accent, a vowel sign, a joiner."""
    return unicodedata.category(char).startswith("M") or char in "\u200c\u200d"


@cache
def _spacy(language: str) -> Tokenizer:
    spacy = require("spacy", extra="spacy")
    with as_input_error(f"spaCy cannot tokenize the language {language!r}", ImportError):
        spacy_tokenizer = spacy.blank(language).tokenizer

    def split(text: str) -> list[str]:
        text = unicodedata.normalize("NFC", text)
        return [token.text for token in spacy_tokenizer(text) if not token.is_space]

    return split
