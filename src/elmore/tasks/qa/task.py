"""The task of question answering (section 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

from elmore.errors import InputError
from elmore.tasks.json_input import parse_json
from elmore.tasks.qa.config import QaConfig
from elmore.tasks.qa.data import QaExample, read_questions
from elmore.tasks.qa.model import Answer, QaBatch, Reader
from elmore.tasks.qa.scores import squad_scores
from elmore.tasks.qa.tokens import tokenize as tokenize_with_offsets
from elmore.tasks.task import Labels, Task
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer
from elmore.transfer import to_device


class Qa(Task[QaExample, QaBatch, Answer]):
    """Find the part of a passage that answers a question."""

    name = "qa"
    config = QaConfig
    score_name = "f1"
    inputs = ("question", "passage")
    has_own_tokenizer = True  # which keeps character offsets

    def read(self, path: Path, config: QaConfig, *, training: bool = False) -> list[QaExample]:
        """Read SQuAD 1.1; for training, truncate long passages."""
        return read_questions(path, max_passage=config.reader.max_passage if training else None)

    def texts(self, example: QaExample) -> Sequence[Sentence]:
        """Return the sentences of the question and the passage."""
        return [*example.question.sentences, *example.passage.sentences]

    def gold_labels(self, example: QaExample) -> list[str]:
        """Return the texts of the gold answers."""
        return example.answers

    def labels(self, examples: Sequence[QaExample]) -> Labels:
        """Return nothing: answers are spans of their passages."""
        return {}

    def build(self, config: QaConfig, words: Words, labels: Labels) -> Reader:
        """Return the reader."""
        return Reader(config.reader, words)

    def collate(
        self, examples: Sequence[QaExample], encode: WordEncoder, labels: Labels
    ) -> QaBatch:
        """Encode questions, passages and gold answers."""
        passages = [example.passage for example in examples]
        questions = [example.question for example in examples]
        passage = encode([p.words for p in passages], [p.sentences for p in passages])
        most = max(1, *(len(example.spans) for example in examples))
        spans = np.full((2, len(examples), most), -1)
        for row, example in enumerate(examples):
            for i, span in enumerate(example.spans):
                spans[:, row, i] = span.start, span.end - 1
        return QaBatch(
            encode([q.words for q in questions], [q.sentences for q in questions]),
            passage,
            to_device(spans, encode.device),
            passages,
        )

    def score(
        self, examples: Sequence[QaExample], predictions: Sequence[Answer]
    ) -> dict[str, float]:
        """Return F1 and exact match."""
        return squad_scores(
            [prediction.text for prediction in predictions],
            [example.answers for example in examples],
        )

    def parse(self, line: str, tokenize: Tokenizer) -> QaExample:
        """Parse `question<TAB>passage`, or a JSON object with `question` and `passage`.

        As in SQuAD, the passage may also be called `context`.
        """
        return self.parse_texts(_parse_line(line), tokenize)

    def parse_texts(self, texts: Sequence[str], tokenize: Tokenizer) -> QaExample:
        """Tokenize a question and a passage."""
        question, passage = map(tokenize_with_offsets, texts)
        for name, text in zip(self.inputs, (question, passage), strict=True):
            if not text.words:
                raise InputError(f"expected a {name}, got {text.text!r:.60}")
        return QaExample(question, passage, [], [])

    def show(self, example: QaExample, prediction: Answer) -> str:
        """Return the question, and the passage with the answer marked."""
        text, (_, start, end, probability) = example.passage.text, prediction
        mark = f"[bold green]{escape(f'[{text[start:end]}]')}[/bold green]"
        return (
            f"[bold]{escape(example.question.text)}[/bold] [dim]({probability:.0%})[/dim]\n"
            f"{escape(text[:start])}{mark}{escape(text[end:])}"
        )

    def as_json(self, example: QaExample, prediction: Answer, config: QaConfig) -> dict[str, Any]:
        """Return the answer, its character offsets and its probability."""
        return {
            "question": example.question.text,
            "answer": prediction.text,
            "start": prediction.start,
            "end": prediction.end,
            "probability": prediction.probability,
        }


def _parse_line(line: str) -> tuple[str, str]:
    expected = "expected question<TAB>passage, or a JSON object with `question` and `passage`"
    if not line.lstrip().startswith("{"):
        question, tab, passage = line.partition("\t")
        if not tab:
            raise InputError(f"{expected}; got no tab in {line!r:.60}")
        return question.strip(), passage.strip()
    try:
        item = parse_json(line)
    except InputError as error:
        raise InputError(f"{expected}; got {line!r:.60} ({error})") from error
    question, passage = item.get("question"), item.get("passage", item.get("context"))
    if not isinstance(question, str) or not isinstance(passage, str):
        raise InputError(f"{expected}, both strings; got {line!r:.60}")
    return question, passage
