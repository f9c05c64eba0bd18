"""Columns of the CoNLL shared tasks to sentences with entities: the word first, its tag last."""

from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.tasks.spans import Span, is_tag, spans_of
from elmore.text.lines import read_lines


class NerExample(NamedTuple):
    """A sentence and its entities."""

    tokens: list[str]
    entities: list[Span]


def read_entities(path: Path) -> list[NerExample]:
    """Read a file of CoNLL columns, tags in IOB1, IOB2 or BIOES; a blank line ends a sentence."""
    examples: list[NerExample] = []
    tokens: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*read_lines(path), ""], 1):
        # Tabs where there are any: a token may then hold a space.
        columns = line.split("\t") if "\t" in line else line.split()
        if line.strip() and not line.startswith("-DOCSTART-"):
            if len(columns) < 2 or not columns[0] or not is_tag(columns[-1].strip()):
                raise InputError(
                    f"{path}, line {number}: expected a word and, in the last column, a tag such "
                    f"as O, B-PER or I-PER, got {line!r:.60}"
                )
            tokens.append(columns[0])
            tags.append(columns[-1].strip())
        elif tokens:
            examples.append(NerExample(tokens, spans_of(tags)))
            tokens, tags = [], []
    return examples
