"""Disturbed copies of files in CoNLL columns: typos, changed case, unseen words.

Only letters of the words in the first column change, so that a disturbed file has the same tokens
in number, the same tags and the same spans.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmore.errors import InputError
from elmore.text.lines import read_lines

Random = np.random.Generator

_MIN_LETTERS = 3
"""Words with fewer letters are not replaced by unseen ones: too few others are possible."""

_MAX_DRAWS = 100
_DOCSTART = "-DOCSTART-"


def disturb(words: Sequence[str], kind: str, rate: float, seed: int = 0) -> list[str]:
    """Return a disturbed copy of the words of a text.

    With the same seed, letters that change at a lower rate also change at a higher one.

    Args:
        words: The words; none of them becomes empty or gets white space.
        kind: `typos`: letters are swapped with their neighbor, dropped, inserted or substituted.
            `case`: letters change from upper to lower case or back. `unseen words`: words get other
            letters, and become words that the text does not have.
        rate: Share of the letters that are disturbed, from 0 to 1; for `unseen words`, the share of
            letters in words that are replaced. For `case`, letters without case do not count.
        seed: Seed of all choices.

    Raises:
        InputError: If the kind is unknown or the rate is not a share.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of noise {kind!r}; expected any of {', '.join(KINDS)}")
    if not 0 <= rate <= 1:
        raise InputError(f"the rate must be from 0 to 1, got {rate}")
    return KINDS[kind](list(words), rate, np.random.default_rng(seed))


def write_disturbed(source: Path, target: Path, kind: str, rate: float, seed: int = 0) -> None:
    """Write a disturbed copy of a file in CoNLL columns; see `disturb`."""
    lines = list(read_lines(source))
    rows = [n for n, line in enumerate(lines) if line.strip() and not line.startswith(_DOCSTART)]
    words = [lines[row].split(maxsplit=1)[0] for row in rows]
    for row, word, disturbed in zip(rows, words, disturb(words, kind, rate, seed), strict=True):
        lines[row] = lines[row].replace(word, disturbed, 1)
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _add_typos(words: list[str], rate: float, random: Random) -> list[str]:
    letters = _letters(words, str.isalpha)
    alphabet = [words[word][index] for word, index in letters]
    # From the end of a word to its start, so that the positions before it stay valid.
    for word, index in sorted(_draw(letters, rate, random), reverse=True):
        words[word] = _add_typo(words[word], index, alphabet, random)
    return words


def _add_typo(word: str, index: int, alphabet: Sequence[str], random: Random) -> str:
    """Return a word with one letter disturbed; a letter that is drawn comes from the text."""
    before, letter, after = word[:index], word[index], word[index + 1 :]
    other = alphabet[int(random.integers(len(alphabet)))]
    other = other.upper() if letter.isupper() else other.lower()
    edits = [
        before + after[0] + letter + after[1:] if after else before[:-1] + letter + before[-1:],
        before + after,
        before + other + letter + after,
        before + other + after,
    ]
    for edit in random.permutation(edits).tolist():
        if edit not in ("", word):
            return str(edit)
    return word


def _change_case(words: list[str], rate: float, random: Random) -> list[str]:
    # Of some letters, such as the German ss, the other case has two letters or is the same.
    letters = _letters(words, lambda x: len(x.swapcase()) == 1 and x.swapcase() != x)
    for word, index in _draw(letters, rate, random):
        old = words[word]
        words[word] = old[:index] + old[index].swapcase() + old[index + 1 :]
    return words


def _replace_words(words: list[str], rate: float, random: Random) -> list[str]:
    letters = _letters(words, str.isalpha)
    alphabet = [words[word][index] for word, index in letters]
    counts = Counter(word for word, _ in letters)
    known, replaced = set(words), 0
    for word in random.permutation(len(words)).tolist():
        if replaced >= rate * len(letters):
            break
        if counts[word] >= _MIN_LETTERS:
            words[word] = _unseen_word(words[word], alphabet, known, random)
            replaced += counts[word]
    return words


def _unseen_word(word: str, alphabet: Sequence[str], known: set[str], random: Random) -> str:
    """Return a word of the same length and case that is not known, if one is found."""
    for _ in range(_MAX_DRAWS):
        letters = (alphabet[i] for i in random.integers(len(alphabet), size=len(word)))
        unseen = "".join(
            (new.upper() if old.isupper() else new.lower()) if old.isalpha() else old
            for old, new in zip(word, letters, strict=True)
        )
        if unseen not in known:
            return unseen
    return word


def _letters(words: Sequence[str], is_letter: Callable[[str], bool]) -> list[tuple[int, int]]:
    """Return the word and the index in the word of each letter."""
    return [
        (number, index)
        for number, word in enumerate(words)
        for index, letter in enumerate(word)
        if is_letter(letter)
    ]


def _draw(letters: Sequence[tuple[int, int]], rate: float, random: Random) -> list[tuple[int, int]]:
    count = round(rate * len(letters))
    return [letters[i] for i in random.permutation(len(letters))[:count]]


KINDS: dict[str, Callable[[list[str], float, Random], list[str]]] = {
    "typos": _add_typos,
    "case": _change_case,
    "unseen words": _replace_words,
}
"""Functions that disturb words, by the kind of noise."""

PERCENT = (5, 10)
"""Percent of the letters that are disturbed."""


class Noise(NamedTuple):
    """A way to disturb a text."""

    kind: str
    percent: int

    @property
    def name(self) -> str:
        """A name for files, such as `unseen_words-5`."""
        return f"{self.kind.replace(' ', '_')}-{self.percent}"


NOISES = tuple(Noise(kind, percent) for kind in KINDS for percent in PERCENT)
"""All ways in which robustness is measured."""
