"""SQuAD 1.1 to questions, passages and the tokens of their answers.

{"data": [{"paragraphs": [{"context": TEXT, "qas": [
    {"question": TEXT, "answers": [{"text": TEXT, "answer_start": CHARACTER}]}]}]}]}
"""

import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from elmore.errors import InputError
from elmore.tasks.qa.tokens import Tokens, tokenize
from elmore.text.lines import open_bytes

T = TypeVar("T")

TokenSpan = tuple[int, int]
"""Tokens from the first up to, not including, the second."""


class QaExample(NamedTuple):
    """A question, and where its passage answers it."""

    question: Tokens
    passage: Tokens
    """One object for all questions about it."""

    spans: list[TokenSpan]
    """Every place of an answer, in order."""

    answers: list[str]
    """The answers as they were given, any of which is right."""


def read_questions(path: Path, *, max_passage: int | None = None) -> list[QaExample]:
    """Read a file of SQuAD 1.1.

    Args:
        path: JSON, compressed or not.
        max_passage: Keep so many tokens of a passage, and the questions that they answer; for
            training. None keeps all.
    """
    content = _read_json(path)
    return [
        example
        for paragraph, where in _paragraphs(content, str(path))
        for example in _read_paragraph(paragraph, where, max_passage)
    ]


def _read_json(path: Path) -> Any:
    with open_bytes(path) as file:
        try:
            return json.loads(file.read().decode("utf-8-sig"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: expected JSON in the format of SQuAD 1.1 ({error})"
            ) from error
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            raise InputError(f"{path}: damaged file ({error})") from error


def _paragraphs(content: Any, path: str) -> Iterator[tuple[Any, str]]:
    for article, where in _items(content, "data", f"{path}: "):
        yield from _items(article, "paragraphs", where)


def _read_paragraph(paragraph: Any, where: str, max_passage: int | None) -> Iterator[QaExample]:
    whole = tokenize(_field(paragraph, "context", str, where))
    if not whole.words:
        raise InputError(f"{where}context: expected a text, got {whole.text!r:.60}")
    passage = whole if max_passage is None else whole.cut(max_passage)
    for item, place in _items(paragraph, "qas", where):
        question = tokenize(_field(item, "question", str, place))
        if not question.words:
            raise InputError(f"{place}question: expected a question, got {question.text!r:.60}")
        answers = [_read_answer(answer, whole, at) for answer, at in _items(item, "answers", place)]
        if not answers:
            raise InputError(
                f"{place}answers: expected at least one; in SQuAD 1.1 every question has an answer"
            )
        spans = _token_spans(answers, whole)
        kept = [span for span in spans if span[1] <= len(passage.words)]
        if kept or max_passage is None:
            yield QaExample(question, passage, kept, [answer.text for answer in answers])


class _Answer(NamedTuple):
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _read_answer(answer: Any, passage: Tokens, where: str) -> _Answer:
    text = _field(answer, "text", str, where)
    start = _field(answer, "answer_start", int, where)
    if not text.strip():
        raise InputError(f"{where}text: expected words of the context, got {text!r:.60}")
    there = passage.text[start : start + len(text)] if start >= 0 else ""
    if there != text:
        raise InputError(
            f"{where}answer_start: expected the character of the context where {text!r:.60} "
            f"begins, got {start}, where it says {there!r:.60}"
        )
    return _Answer(text, start)


def _token_spans(answers: list[_Answer], passage: Tokens) -> list[TokenSpan]:
    """Return the places of answers, each the fewest tokens that cover it.

    Where one fits its tokens exactly, those that don't are left out: if the answer is `art`, then
    its place is not in `party`, though a file that lists every place where its letters occur may
    say so.
    """
    covering = {passage.cover(answer.start, answer.end): answer for answer in answers}
    exact = [
        (first, last)
        for (first, last), answer in covering.items()
        if passage.slice(first, last).strip() == answer.text.strip()
    ]
    return sorted(exact or covering)


def _items(thing: Any, name: str, where: str) -> Iterator[tuple[Any, str]]:
    """Yield the items of a list in an object, each with the start of messages about it."""
    for i, item in enumerate(_field(thing, name, list, where)):
        yield item, f"{where}{name}[{i}]."


def _field(thing: Any, name: str, kind: type[T], where: str) -> T:
    """Return what an object has under a name."""
    if not isinstance(thing, dict):
        at = where.rstrip(".: ")
        raise InputError(f"{at}: expected an object with {name!r}, got {thing!r:.60}")
    value = thing.get(name)
    if type(value) is not kind:  # not isinstance: True is no number here
        got = f"got {value!r:.60}" if name in thing else "but it is missing"
        kinds = {str: "a text", int: "a whole number", list: "a list"}
        raise InputError(f"{where}{name}: expected {kinds[kind]}, {got}")
    return value
