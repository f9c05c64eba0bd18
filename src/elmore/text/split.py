"""Paragraphs to sentences, by punctuation and Moses's list of abbreviations.

The rules need no trained model and apply to any language that ends sentences with a period or its
full-width equivalent.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

_END = re.compile(
    r"""
    (?P<stop> [.!?\u2026]+ )
    (?P<closing> ["')\]\u2019\u201d\u00bb]* )
    \s+
    (?=
        ["'(\[\u2018\u201c\u00ab\u00bf\u00a1\u226a\u3008\u300a\u300c\u300e\u3010\u3014\uff08\uff1c]*
        (?P<next> \w )
    )
    | (?P<wide> [\u3002\uff01\uff1f]+ [\u300d\u300f\uff09"']* ) \s*
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"[\w.\-]*$")
_LONGEST_ABBREVIATION = 40


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Split a paragraph into sentences, stripped of surrounding whitespace."""
    bounds = pairwise([0, *sentence_starts(text, language), len(text)])
    return [sentence for start, end in bounds if (sentence := text[start:end].strip())]


def sentence_starts(text: str, language: str = "en") -> Iterator[int]:
    """Yield the character offset of each sentence of a paragraph except the first."""
    abbreviations, before_numbers = _abbreviations(language)
    start = 0
    for end in _END.finditer(text):
        if end["wide"] is None:
            following = end["next"]
            before = text[end.start() - 1 : end.start()]
            can_start = following.isupper() or following.isdigit() or _has_no_case(following)
            # Korean sentences may start with a lowercase word: "출시됐다. iOS는".
            if not (can_start or _has_no_case(before)):
                continue
            if end["stop"] == "." and not end["closing"]:
                # A bounded search keeps the total time linear in the length of the text.
                first = max(start, end.start() - _LONGEST_ABBREVIATION)
                word = _LAST_WORD.search(text, first, end.start())[0]  # type: ignore[index]
                is_initial = len(word) == 1 and word.isupper()
                is_acronym = "." in word and word[-1:].isupper()
                if is_initial or is_acronym or word in abbreviations:
                    continue
                if word in before_numbers and following.isdigit():
                    continue
                if word.isdecimal() and language == "ko":  # "2008. 12. 25.", "2. 분데스리가"
                    continue
        start = end.end()
        yield start


def _has_no_case(char: str) -> bool:
    return char.isalpha() and char.lower() == char.upper()


@cache
def _abbreviations(language: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return abbreviations that never end a sentence, and those that do not before a number."""
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)
    numeric = frozenset(moses.NUMERIC_ONLY_PREFIXES)
    return frozenset(moses.NONBREAKING_PREFIXES) - numeric, numeric
