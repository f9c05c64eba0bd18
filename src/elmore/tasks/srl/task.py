"""Semantic role labeling (section 4): the task."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmore.tasks.show import mark_spans
from elmore.tasks.spans import Span, span_f1, tags_of
from elmore.tasks.srl.config import SrlConfig
from elmore.tasks.srl.data import PREDICATE, SrlExample, read_frames
from elmore.tasks.srl.model import NO_TAG, RoleLabeler, SrlBatch
from elmore.tasks.task import Labels, Task
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer, tokenize_marked
from elmore.transfer import to_device


class Srl(Task[SrlExample, SrlBatch, list[Span]]):
    """Find who did what to whom: the roles of a predicate."""

    name = "srl"
    config = SrlConfig
    score_name = "f1"

    def read(self, path: Path, config: SrlConfig, *, training: bool = False) -> list[SrlExample]:
        """Read CoNLL-2012 columns."""
        limit = config.labeler.max_length
        return [e for e in read_frames(path) if not training or len(e.tokens) <= limit]

    def texts(self, example: SrlExample) -> Sequence[Sentence]:
        """Return the sentence."""
        return [example.tokens]

    def labels(self, examples: Sequence[SrlExample]) -> Labels:
        """Return the tags of all roles."""
        roles = sorted({role.label for example in examples for role in example.roles})
        return {"tags": ["O", *(f"{prefix}-{role}" for role in roles for prefix in "BI")]}

    def build(self, config: SrlConfig, words: Words, labels: Labels) -> RoleLabeler:
        """Return the labeler."""
        return RoleLabeler(config.labeler, words, labels["tags"])

    def collate(
        self, examples: Sequence[SrlExample], encode: WordEncoder, labels: Labels
    ) -> SrlBatch:
        """Encode sentences, predicates and tags."""
        words = encode([example.tokens for example in examples])
        number = {tag: i for i, tag in enumerate(labels["tags"])}
        tags = np.full(words.ids.shape, NO_TAG)
        for row, example in zip(tags, examples, strict=True):
            of_words = tags_of(example.roles, len(example.tokens), "iob2")
            # A role that was never seen in training can't be found either.
            row[: len(of_words)] = [number.get(tag, 0) for tag in of_words]
        predicates = torch.tensor([example.predicate for example in examples])
        return SrlBatch(
            words,
            to_device(predicates, encode.device),
            to_device(tags, encode.device),
        )

    def score(
        self, examples: Sequence[SrlExample], predictions: Sequence[list[Span]]
    ) -> dict[str, float]:
        """Return the F1 of whole arguments; the predicate, which is given, does not count."""
        return span_f1((arguments(e.roles) for e in examples), map(arguments, predictions))

    def parse(self, line: str, tokenize: Tokenizer) -> SrlExample:
        """Read a sentence with its predicate in brackets, as in `She [gave] him a book .`."""
        # As treebanks have them: that is what there is to learn from.
        split = partial(treebank_tokens, tokenize=tokenize)
        tokens, predicate = tokenize_marked(line, split, "She [gave] him a book .")
        return SrlExample(tokens, predicate, [])

    def show(self, example: SrlExample, prediction: list[Span]) -> str:
        """Return the sentence with its roles marked."""
        return mark_spans(example.tokens, prediction)

    def as_json(
        self, example: SrlExample, prediction: list[Span], config: SrlConfig
    ) -> dict[str, Any]:
        """Return the predicate, its roles, and all tags."""
        return {
            "tokens": example.tokens,
            "predicate": example.predicate,
            "roles": [
                {**role._asdict(), "text": " ".join(example.tokens[role.start : role.end])}
                for role in prediction
            ],
            "tags": tags_of(prediction, len(example.tokens), "iob2"),
        }


Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A label, and where each piece begins and ends; nearly always there is one piece."""


def arguments(roles: Iterable[Span]) -> list[Argument]:
    """Put pieces together as the scorer of CoNLL-2005 does: C-ARG1 goes on with the last ARG1."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}
    for label, start, end in sorted(roles, key=lambda role: role.start):
        kind = label.removeprefix("C-")
        if kind == label or kind not in last:
            last[kind] = []
            found.append((kind, last[kind]))
        last[kind].append((start, end))
    return [(kind, tuple(pieces)) for kind, pieces in found if kind != PREDICATE]
