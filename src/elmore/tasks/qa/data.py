"""SQuAD 1.1 to questions, passages and the spans of their answers.

{"data": [{"paragraphs": [{"context": TEXT, "qas": [
    {"question": TEXT, "answers": [{"text": TEXT, "answer_start": CHARACTER}]}]}]}]}
"""

import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from elmore.errors import InputError
from elmore.tasks.json_input import parse_json
from elmore.tasks.qa.tokens import Tokens, tokenize
from elmore.tasks.spans import Span
from elmore.text.lines import open_bytes

T = TypeVar("T")


class QaExample(NamedTuple):
    """A question, its passage, and the answers."""

    question: Tokens
    passage: Tokens
    """The same object for all questions about it."""

    spans: list[Span]
    """Tokens of every gold answer, sorted."""

    answers: list[str]
    """Texts of the gold answers, each of which is correct."""


def read_questions(path: Path, *, max_passage: int | None = None) -> list[QaExample]:
    """Read a file of SQuAD 1.1.

    Args:
        path: JSON file, which may be compressed.
        max_passage: For training: truncate passages to this many tokens, and skip questions whose
            answers are beyond that.

    Raises:
        InputError: If the file is not in the format of SQuAD 1.1.
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
            return parse_json(file.read().decode("utf-8-sig"))
        except (InputError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: expected JSON in the format of SQuAD 1.1 ({error})"
            ) from error
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            raise InputError(f"{path}: damaged file ({error})") from error


def _paragraphs(content: Any, path: str) -> Iterator[tuple[Any, str]]:
    for article, where in _items(content, "data", f"{path}: "):
        yield from _items(article, "paragraphs", where)


def _read_paragraph(paragraph: Any, where: str, max_passage: int | None) -> Iterator[QaExample]:
    full = tokenize(_field(paragraph, "context", str, where))
    if not full.words:
        raise InputError(f"{where}context: expected a text, got {full.text!r:.60}")
    passage = full if max_passage is None else full.truncate(max_passage)
    for item, path in _items(paragraph, "qas", where):
        question = tokenize(_field(item, "question", str, path))
        if not question.words:
            raise InputError(f"{path}question: expected a question, got {question.text!r:.60}")
        answers = [_read_answer(answer, full, at) for answer, at in _items(item, "answers", path)]
        if not answers:
            raise InputError(
                f"{path}answers: expected at least one; in SQuAD 1.1 every question has an answer"
            )
        spans = [span for span in _answer_spans(answers, full) if span.end <= len(passage.words)]
        if spans or max_passage is None:
            yield QaExample(question, passage, spans, [answer.text for answer in answers])


class _GoldAnswer(NamedTuple):
    text: str
    start: int
    """Character offset in the passage."""


def _read_answer(answer: Any, passage: Tokens, where: str) -> _GoldAnswer:
    text = _field(answer, "text", str, where)
    start = _field(answer, "answer_start", int, where)
    if not text.strip():
        raise InputError(f"{where}text: expected words of the context, got {text!r:.60}")
    actual = passage.text[start : start + len(text)] if start >= 0 else ""
    if actual != text:
        raise InputError(
            f"{where}answer_start: expected the offset of {text!r:.60} in the context, got "
            f"{start}, where the context has {actual!r:.60}"
        )
    return _GoldAnswer(text, start)


def _answer_spans(answers: list[_GoldAnswer], passage: Tokens) -> list[Span]:
    """Return the smallest token span that covers each answer, sorted.

    If some answers match their tokens exactly, the others are left out: a file that lists every
    occurrence of `art` as a string may also list the one in `party`.
    """
    covering = {passage.cover(a.start, a.start + len(a.text)): a for a in answers}
    exact = [
        span
        for span, answer in covering.items()
        if passage.text_of(span).strip() == answer.text.strip()
    ]
    return sorted(exact or covering)


def _items(thing: Any, name: str, where: str) -> Iterator[tuple[Any, str]]:
    """Yield the items of a list in a JSON object, each with the start of error messages."""
    for i, item in enumerate(_field(thing, name, list, where)):
        yield item, f"{where}{name}[{i}]."


def _field(thing: Any, name: str, kind: type[T], where: str) -> T:
    """Return a field of a JSON object; raise `InputError` if it is missing or not a `kind`."""
    if not isinstance(thing, dict):
        at = where.rstrip(".: ")
        raise InputError(f"{at}: expected an object with {name!r}, got {thing!r:.60}")
    value = thing.get(name)
    if type(value) is not kind:  # not isinstance: a bool is an int, too
        got = f"got {value!r:.60}" if name in thing else "but it is missing"
        kinds = {str: "a string", int: "an integer", list: "a list"}
        raise InputError(f"{where}{name}: expected {kinds[kind]}, {got}")
    return value
