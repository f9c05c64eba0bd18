"""Trees of the Stanford Sentiment Treebank, or labeled sentences, to sentences and phrases.

(4 (2 It) (4 (2 works) (2 .)))      each phrase has a label from 0, very negative, to 4
positive<TAB>It works.              a label and a sentence; see `elmore.tasks.classify.data`
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from elmore.errors import InputError
from elmore.tasks.classify.data import read_examples
from elmore.tasks.spans import LabeledSpan
from elmore.tasks.treebank import treebank_tokens, unescape
from elmore.text.lines import read_lines
from elmore.text.tokenize import Tokenizer

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
    path: Path,
    *,
    classes: Literal[5, 2],
    phrases: bool = False,
    min_phrase: int = 1,
    tokenize: Tokenizer = str.split,
) -> list[SentimentExample]:
    """Read trees or labeled sentences: TSV, CSV or JSON lines.

    Labels may have any names. Numbers are taken for those of the treebank if all labels of the file
    are on its scale and some are above 2; otherwise they are names, too.

    Args:
        path: The file.
        classes: The treebank's five classes, or two, without neutral examples. Other classes stay
            as they are.
        phrases: Return the phrases of trees, too. Duplicates with the same label are dropped;
            otherwise short phrases, which occur in many sentences, would outweigh all others.
        min_phrase: Minimum number of words in a phrase; sentences may be shorter.
        tokenize: Tokenizer of sentences without a tree.

    Raises:
        InputError: If a line is not a tree, a label with a sentence, or a row of the table.
    """
    trees = list(_read_trees(path, tokenize))
    labels = {tree.phrases[-1].label.lower() for tree in trees}
    on_scale = labels <= _NAMES.keys() and not labels <= {"0", "1", "2"}
    sentences = {tuple(tree.tokens) for tree in trees}
    examples = [
        (tuple(tree.tokens[start:end]), _NAMES[label.lower()] if on_scale else label)
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


def _read_trees(path: Path, tokenize: Tokenizer) -> Iterator[Tree]:
    """Yield the sentences of a file with their labeled phrases."""
    lines = [(n, line) for n, line in enumerate(read_lines(path), 1) if line.strip()]
    if not lines or not _is_tree(lines[0][1]):
        for tokens, labels, _ in read_examples(path, tokenize):
            yield Tree(tokens, [LabeledSpan(labels[0], 0, len(tokens))])
        return
    for number, line in lines:
        try:
            yield parse_tree(line) if _is_tree(line) else _parse_labeled(line, tokenize)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}, got {line!r:.60}") from error


def _is_tree(line: str) -> bool:
    return line.lstrip().startswith("(")


def _parse_labeled(line: str, tokenize: Tokenizer) -> Tree:
    label, _, sentence = line.partition("\t")
    tokens = treebank_tokens(sentence, tokenize)
    if not label.strip() or not tokens:
        raise InputError(
            "expected a tree such as (3 (2 It) (3 works)), or a label, a tab and a sentence"
        )
    return Tree(tokens, [LabeledSpan(label.strip(), 0, len(tokens))])


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
