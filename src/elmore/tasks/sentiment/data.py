"""Trees of the Stanford Sentiment Treebank, or labeled lines, to sentences and phrases.

(4 (2 It) (4 (2 works) (2 .)))      each phrase has a label from 0, very negative, to 4
4<TAB>It works .                    a label, as a number or a word, and a tokenized sentence
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from elmore.errors import InputError
from elmore.tasks.spans import LabeledSpan
from elmore.tasks.treebank import unescape
from elmore.text.lines import read_lines

SCALE = ("very negative", "negative", "neutral", "positive", "very positive")
"""The five classes, in the order of their numbers."""

_BINARY = {"very negative": "negative", "very positive": "positive", "neutral": None}
"""Binary class of a five-way class; None excludes it. Classes that are not listed stay."""
_NAMES = {**{str(n): name for n, name in enumerate(SCALE)}, **{name: name for name in SCALE}}
_TREE_TOKEN = re.compile(r"[()]|[^ \t()]+")  # not \s: some words contain a no-break space


class SentimentExample(NamedTuple):
    """A sentence, or a phrase of one, and its class."""

    tokens: list[str]
    label: str
    is_phrase: bool = False


class Tree(NamedTuple):
    """A sentence and its phrases, with class names as labels; the last is the sentence itself."""

    tokens: list[str]
    phrases: list[LabeledSpan]


def read_sentiment(
    path: Path, *, classes: Literal[5, 2], phrases: bool = False, min_phrase: int = 1
) -> list[SentimentExample]:
    """Read trees or labeled lines.

    Args:
        path: The file.
        classes: Five classes, or two, without neutral examples.
        phrases: Return the phrases of trees, too. Duplicates with the same label are dropped;
            otherwise short phrases, which occur in many sentences, would outweigh all others.
        min_phrase: Minimum number of words in a phrase; sentences may be shorter.

    Raises:
        InputError: If a line is not a tree or a label with a sentence.
    """
    _refuse_binary_labels(path)
    trees = list(read_trees(path))
    sentences = {tuple(tree.tokens) for tree in trees}
    examples = [
        (tuple(tree.tokens[start:end]), label)
        for tree in trees
        for label, start, end in (_phrases(tree, min_phrase) if phrases else tree.phrases[-1:])
    ]
    if phrases:
        examples = list(dict.fromkeys(examples))
    names = _BINARY if classes == 2 else {}
    return [
        SentimentExample(list(words), name, is_phrase=words not in sentences)
        for words, label in examples
        if (name := names.get(label, label))
    ]


def _phrases(tree: Tree, min_phrase: int) -> Iterator[LabeledSpan]:
    *inner, sentence = tree.phrases
    yield from (phrase for phrase in inner if phrase.end - phrase.start >= min_phrase)
    yield sentence


def _refuse_binary_labels(path: Path) -> None:
    """Raise `InputError` for labeled lines where 0 and 1 seem to mean negative and positive."""
    if {line.partition("\t")[0].strip() for line in read_lines(path)} - {""} == {"0", "1"}:
        raise InputError(
            f"{path}: all labels are 0 or 1, which are both negative on the scale from 0 to 4. "
            "Write negative and positive instead, or very negative and negative."
        )


def read_trees(path: Path) -> Iterator[Tree]:
    """Yield the sentences of a file with their labeled phrases."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            yield parse_tree(line) if line.lstrip().startswith("(") else _parse_labeled(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}, got {line!r:.60}") from error


def _parse_labeled(line: str) -> Tree:
    label, tab, sentence = line.partition("\t")
    name = _NAMES.get(label.strip().lower())
    if not tab or name is None or not sentence.strip():
        raise InputError(
            "expected a tree such as (3 (2 It) (3 works)), or a label from 0 to 4 or "
            "from very negative to very positive, a tab and a sentence"
        )
    tokens = [unescape(token) for token in sentence.split()]
    return Tree(tokens, [LabeledSpan(name, 0, len(tokens))])


def parse_tree(line: str) -> Tree:
    """Parse a tree: (LABEL WORD), or (LABEL TREE TREE ...).

    Raises:
        InputError: If the line is not exactly one tree.
    """
    tokens: list[str] = []
    phrases: list[LabeledSpan] = []
    open_phrases: list[tuple[str, int]] = []  # label and start
    parts = iter(_TREE_TOKEN.findall(line))
    before = ""
    for part in parts:
        if phrases and not open_phrases:
            raise InputError("expected one tree per line, and nothing after it")
        if part == "(" and before in ("", "(", ")"):
            open_phrases.append((_label(next(parts, "")), len(tokens)))
        elif part == ")":
            label, start = open_phrases.pop() if open_phrases else ("", len(tokens))
            if start == len(tokens):
                raise InputError("expected a phrase between parentheses")
            phrases.append(LabeledSpan(label, start, len(tokens)))
        elif before != "(":
            raise InputError(f"expected {part!r} in its own parentheses")
        else:
            tokens.append(unescape(part))
        before = part
    if open_phrases or not phrases:
        raise InputError("expected as many ) as ( in a tree")
    return Tree(tokens, phrases)


def _label(number: str) -> str:
    if number not in ("0", "1", "2", "3", "4"):
        raise InputError(f"expected a label from 0 to 4 after (, got {number!r}")
    return _NAMES[number]
