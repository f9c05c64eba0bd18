"""Numbers on the pages. Oracles: the log of experiments, the code's settings, the paper's scores.

The measurements of a statement, a sentence or a table row, must all be in one entry of the log, up
to rounding. A wrong number therefore fails even if an unrelated entry happens to have it.
"""

import ast
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from elmore.analysis.evaluation import Part
from elmore.analysis.parts import PARTS
from elmore.analysis.table1 import error_reduction
from elmore.analysis.training.datasets import DATASETS
from tests.test_docs import CARDS, ROOT, SOURCE, name_of

LOG = ROOT / "experiments" / "LOG.md"
CORPORA = ROOT / "docs" / "models.md"
CONFIGS = [file for card in CARDS if (file := card.with_name("config.json")).exists()]
GENERATED = ROOT / "docs" / "results" / "report.md"  # tests/test_results.py checks its tables
PAGES = sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *CARDS} - {CORPORA, GENERATED})

OTHERS = {
    Decimal("39.7"): "perplexity of the biLM in Peters et al. (2018), section 3.4",
    Decimal("1e-13"): "added to variances by some versions of AllenNLP",
}
"""Numbers from elsewhere that `elmore.analysis` does not have."""

_HIDDEN = re.compile(
    r"^```.*?^```$|^#.*?$|`[^`]*`|!\[[^]]*\]|\]\((?!https)[^)]*\)|\*\*|\d+(?:\.\d+){2,}",
    re.MULTILINE | re.DOTALL,
)
"""Code, headings, descriptions of figures, targets of links within the repository, bold type and
versions."""
_STATEMENT = re.compile(r"\S.*?(?=\n\s*\n|\n\s*(?:\||- |\d\. )|[.;:]\s|\Z)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.,@#/^+-])(\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?)(?![\w.]*\d)")
_SCALE = {"million": 10**6, "billion": 10**9, "M": 10**6}
_UNIT = re.compile(
    r"(?:(?:,| and| to| /) \d[\d.,]*)* (?:%|k?m?s\b|(?:core-|GPU-)?(?:second|minute|hour)s?\b|"
    r"[kKMGT]i?B\b|(?:words|tokens|residues|proteins)(?:/s| per second| a second)|times\b|"
    r"million\b|billion\b|M\b)"
)
_NAME = re.compile(
    r"(?:[Ss]ections?|Table|Figure|Eq\.|License|BY|BY-SA|Apache|Python|PyTorch|AllenNLP|SQuAD|"
    r"simple_elmo|transformers|PySpark|Java|Dask|WordNet|HDF5|capability|elmore|to) \(?$|^\| $"
)
"""Text before the number of a section, a license or a version."""


class Number(NamedTuple):
    """A number in a text: its value, the value of its last digit, and its offset."""

    text: str
    value: Decimal
    digit: Decimal
    offset: int

    def rounds(self, value: Decimal) -> bool:
        """Return whether this is the value, rounded."""
        return abs(value - self.value) <= self.digit / 2


def numbers_in(text: str) -> Iterator[Number]:
    for match in _NUMBER.finditer(text):
        value = Decimal(match[1].replace(",", ""))
        whole = "." not in match[1] and "e" not in match[1]
        digit = Decimal(1).scaleb((value.normalize() if whole else value).as_tuple().exponent)
        scale = _SCALE.get(text[match.end() :].lstrip(" ").partition(" ")[0].rstrip(",.;|"), 1)
        yield Number(match[1], value * scale, digit * scale, match.start())


def is_measurement(number: Number, text: str) -> bool:
    after = text[number.offset + len(number.text) :]
    return not _NAME.search(text[: number.offset]) and (
        not number.text.isdigit() or _UNIT.match(after) is not None
    )


class Statement(NamedTuple):
    """A sentence or a table row with measurements."""

    place: str
    numbers: list[Number]


def statements_of(page: Path) -> Iterator[Statement]:
    text = _HIDDEN.sub(lambda match: re.sub(r"\S", " ", match[0]), page.read_text(encoding="utf-8"))
    for match in _STATEMENT.finditer(text):
        numbers = [n for n in numbers_in(match[0]) if is_measurement(n, match[0])]
        numbers = [n for n in numbers if n.value not in other_numbers()]
        if numbers and "https://" not in match[0]:
            line = text.count("\n", 0, match.start() + numbers[0].offset) + 1
            yield Statement(f"{name_of(page)}:{line}", numbers)


def settings() -> Iterator[Decimal]:
    """Yield the numbers in the code, also in percent, and in the recipes."""
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                value = Decimal(str(node.value))
                yield value
                if 0 < value < 1:
                    yield 100 * value
    for recipe in ROOT.glob("recipes/*.toml"):
        yield from (number.value for number in numbers_in(recipe.read_text(encoding="utf-8")))


def published() -> Iterator[Decimal]:
    """Yield the scores of the paper, and of others that `elmore reproduce` compares with."""
    yield from OTHERS
    for part in PARTS.values():
        yield from (number.value for number in numbers_in(part.published))
        if isinstance(part, Part):
            yield from (Decimal(cell) for row in part.paper.values() for cell in row.values())
    for dataset in DATASETS.values():
        if dataset.published:
            reduction = error_reduction(*dataset.published[1:])
            yield from (Decimal(f"{reduction:.1f}"), Decimal(f"{reduction:.0f}"))


@cache
def other_numbers() -> set[Decimal]:
    """Return the numbers that are not measurements of this project."""
    return {*settings(), *published()}


@cache
def entries() -> list[set[Decimal]]:
    """Return the numbers of each entry of the log, each section of a page and each config.json."""
    return [
        {number.value for number in numbers_in(entry)}
        for file in (LOG, CORPORA, *CONFIGS)
        for entry in file.read_text(encoding="utf-8").split("\n## ")
    ]


def entry_has_all(numbers: list[Number]) -> bool:
    return any(
        all(any(number.rounds(value) for value in entry) for number in numbers)
        for entry in entries()
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_measurement_is_in_the_log(page: Path) -> None:
    unknown = [
        f"{place}: {', '.join(number.text for number in numbers)}"
        for place, numbers in statements_of(page)
        if not entry_has_all(numbers)
    ]
    assert not unknown, "no entry of experiments/LOG.md has the numbers of\n" + "\n".join(unknown)


def test_a_wrong_digit_is_noticed() -> None:
    statements = [statement for page in PAGES for statement in statements_of(page)]
    noticed = [
        not entry_has_all([wrong if n is number else n for n in numbers])
        for _, numbers in statements
        for number in numbers
        for wrong in [number._replace(value=number.value + number.digit)]
    ]
    assert len(noticed) > 200
    assert sum(noticed) > 0.7 * len(noticed)
