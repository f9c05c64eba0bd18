"""Trees of the Stanford Sentiment Treebank, or labeled lines, to sentences with a sentiment.

(4 (2 It) (4 (2 works) (2 .)))      every phrase has a label, 0 very negative to 4 very positive
4<TAB>It works .                    a label, as a number or a word, and the tokens of a sentence
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from elmore.errors import InputError
from elmore.tasks.treebank import unescape
from elmore.text.lines import read_lines

SCALE = ("very negative", "negative", "neutral", "positive", "very positive")
"""The classes, in the order of their numbers."""

_HALVES = ("negative", "negative", None, "positive", "positive")
_NUMBERS = {**{str(n): n for n in range(len(SCALE))}, **{name: n for n, name in enumerate(SCALE)}}
_PIECE = re.compile(r"[()]|[^ \t()]+")  # not \s: the treebank has words with a no-break space


class SentimentExample(NamedTuple):
    """A sentence, or a phrase of one, and its class."""

    tokens: list[str]
    label: str


class Phrase(NamedTuple):
    """Words of a sentence from `start` up to, not including, `end`."""

    label: int
    start: int
    end: int


class Tree(NamedTuple):
    """A sentence and its phrases; the last one is the whole of it."""

    tokens: list[str]
    phrases: list[Phrase]


def read_sentiment(
    path: Path, *, classes: Literal[5, 2], phrases: bool = False, min_phrase: int = 1
) -> list[SentimentExample]:
    """Read trees or labeled lines.

    Args:
        path: The file.
        classes: All five, or two, where neutral examples are left out.
        phrases: Return the phrases of trees, too. Equal ones with equal labels count once, or
            those of a few words, which are in many sentences, would outweigh all others.
        min_phrase: Words of a phrase, at least; a sentence may be shorter.
    """
    names = SCALE if classes == 5 else _HALVES
    _refuse_other_scales(path)
    found = [
        (tuple(tree.tokens[start:end]), label)
        for tree in read_trees(path)
        for label, start, end in (_parts(tree, min_phrase) if phrases else tree.phrases[-1:])
    ]
    if phrases:
        found = list(dict.fromkeys(found))
    return [SentimentExample(list(words), name) for words, n in found if (name := names[n])]


def _parts(tree: Tree, least: int) -> Iterator[Phrase]:
    *inner, whole = tree.phrases
    yield from (phrase for phrase in inner if phrase.end - phrase.start >= least)
    yield whole


def _refuse_other_scales(path: Path) -> None:
    """Refuse labeled lines where 0 and 1 are likely to mean negative and positive."""
    if {line.partition("\t")[0].strip() for line in read_lines(path)} - {""} == {"0", "1"}:
        raise InputError(
            f"{path}: the labels are 0 and 1 alone, which are both negative on the scale from 0 "
            "to 4. Write negative and positive in their place, or very negative and negative."
        )


def read_trees(path: Path) -> Iterator[Tree]:
    """Yield the sentences of a file, with those phrases that it labels."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            yield parse_tree(line) if line.lstrip().startswith("(") else _parse_labeled(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}, got {line!r:.60}") from error


def _parse_labeled(line: str) -> Tree:
    label, tab, sentence = line.partition("\t")
    number = _NUMBERS.get(label.strip().lower())
    if not tab or number is None or not sentence.strip():
        raise InputError(
            "expected a tree such as (3 (2 It) (3 works)), or a label from 0 to 4 or "
            "from very negative to very positive, a tab and a sentence"
        )
    tokens = [unescape(token) for token in sentence.split()]
    return Tree(tokens, [Phrase(number, 0, len(tokens))])


def parse_tree(line: str) -> Tree:
    """Read a tree: (LABEL WORD), or (LABEL TREE TREE ...)."""
    tokens: list[str] = []
    phrases: list[Phrase] = []
    opened: list[tuple[int, int]] = []  # label and first word of what is not closed yet
    pieces = iter(_PIECE.findall(line))
    before = ""
    for piece in pieces:
        if phrases and not opened:
            raise InputError("expected one tree a line, and nothing after it")
        if piece == "(" and before in ("", "(", ")"):
            opened.append((_label(next(pieces, "")), len(tokens)))
        elif piece == ")":
            label, start = opened.pop() if opened else (0, len(tokens))
            if start == len(tokens):
                raise InputError("expected a phrase between parentheses")
            phrases.append(Phrase(label, start, len(tokens)))
        elif before != "(":
            raise InputError(f"expected {piece!r} in parentheses of its own")
        else:
            tokens.append(unescape(piece))
        before = piece
    if opened or not phrases:
        raise InputError("expected as many ) as ( in a tree")
    return Tree(tokens, phrases)


def _label(piece: str) -> int:
    if piece not in ("0", "1", "2", "3", "4"):
        raise InputError(f"expected a label from 0 to 4 after (, not {piece!r}")
    return int(piece)
