"""Sentence pairs of SNLI, MultiNLI and SICK.

{"gold_label": "neutral", "sentence1": "A man sings.", "sentence2": "He is on a stage."}
pair_ID<TAB>sentence_A<TAB>sentence_B<TAB>entailment_judgment       a header, then rows
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from elmore.errors import InputError
from elmore.tasks.json_input import parse_json
from elmore.tasks.treebank import treebank_tokens, unescape
from elmore.text.lines import read_lines
from elmore.text.tokenize import Tokenizer

_SENTENCES = (("sentence1", "sentence_A", "premise"), ("sentence2", "sentence_B", "hypothesis"))
_LABEL_FIELDS = ("gold_label", "entailment_judgment", "entailment_label")
_NO_LABEL = "-"
"""Label of pairs without agreement among annotators, which are skipped as in SNLI's paper."""


class EntailmentExample(NamedTuple):
    """Two sentences and the relation between them."""

    premise: list[str]
    hypothesis: list[str]
    label: str


def read_pairs(path: Path, tokenize: Tokenizer) -> list[EntailmentExample]:
    """Read JSON lines, or a tab-separated table with a header.

    Raises:
        InputError: If a line has no label or no sentence.
    """
    examples = []
    for number, row in _read_rows(path):
        try:
            label = _first(row, _LABEL_FIELDS)
            if label is None or not label.strip():
                raise InputError(f"no label; expected one in {' or '.join(_LABEL_FIELDS)}")
            if label.strip() != _NO_LABEL:
                label = label.strip().lower()
                examples.append(parse_pair(row, tokenize)._replace(label=label))
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
    return examples


def parse_pair(row: Mapping[str, Any], tokenize: Tokenizer) -> EntailmentExample:
    """Return a pair without its label, with the tokens of the parse trees if there are any."""
    premise, hypothesis = (_tokens(row, names, tokenize) for names in _SENTENCES)
    return EntailmentExample(premise, hypothesis, "")


def _tokens(row: Mapping[str, Any], names: tuple[str, ...], tokenize: Tokenizer) -> list[str]:
    parse = _first(row, tuple(f"{name}_binary_parse" for name in names))
    if parse:
        return [unescape(token) for token in parse.split() if token not in ("(", ")")]
    sentence = _first(row, names)
    if sentence is None:
        raise InputError(f"no sentence; expected one of {', '.join(names)}")
    return treebank_tokens(sentence, tokenize)


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of several columns that is there; raise if it is not a string."""
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None:
        return None
    if not isinstance(row[name], str):
        raise InputError(f"{name} must be a string, got {row[name]!r:.40}")
    return row[name]


def _read_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield line numbers and rows, as dicts of their columns."""
    columns: list[str] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        if columns:
            yield number, _parse_row(line, columns, path, number)
        elif line.lstrip().startswith("{"):
            try:
                yield number, parse_json(line)
            except InputError as error:
                raise InputError(f"{path}, line {number}: {error}") from error
        else:
            columns = _parse_header(line, path, number)


def _parse_header(line: str, path: Path, number: int) -> list[str]:
    columns = line.split("\t")
    if any(set(names).isdisjoint(columns) for names in (*_SENTENCES, _LABEL_FIELDS)):
        raise InputError(
            f"{path}, line {number}: expected JSON lines with gold_label, sentence1 and "
            "sentence2, or a tab-separated header with sentence_A, sentence_B and "
            f"entailment_judgment, got {line!r:.60}"
        )
    return columns


def _parse_row(line: str, columns: list[str], path: Path, number: int) -> dict[str, str]:
    fields = line.split("\t")
    if len(fields) < len(columns):
        raise InputError(
            f"{path}, line {number}: expected {len(columns)} tab-separated columns, as in the "
            f"header, got {len(fields)}"
        )
    return dict(zip(columns, fields, strict=False))
