"""CoNLL columns to sentences with entities: the word in the first column, its tag in the last."""

from pathlib import Path
from typing import NamedTuple

from elmore.errors import InputError
from elmore.tasks.spans import LabeledSpan, decode_tags, is_tag
from elmore.text.lines import read_lines


class NerExample(NamedTuple):
    """A sentence and its entities."""

    tokens: list[str]
    entities: list[LabeledSpan]
    text: str = ""
    """The raw text, if the example was not read from a file of tokens."""


def read_entities(path: Path) -> list[NerExample]:
    """Read CoNLL columns with tags in IOB1, IOB2 or BIOES; blank lines separate sentences.

    Raises:
        InputError: If a line has no tag.
    """
    examples: list[NerExample] = []
    tokens: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*read_lines(path), ""], 1):
        # Split at tabs if there are any, because then a token may contain a space.
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
            examples.append(NerExample(tokens, decode_tags(tags)))
            tokens, tags = [], []
    return examples
