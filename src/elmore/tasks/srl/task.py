"""The task of semantic role labeling (section 4)."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmore.tasks.span_task import SpanTask
from elmore.tasks.spans import LabeledSpan, Span, SpanProbabilities, encode_tags, spans_as_json
from elmore.tasks.srl.config import SrlConfig
from elmore.tasks.srl.data import PREDICATE, SrlExample, read_frames
from elmore.tasks.srl.model import NO_TAG, RoleLabeler, SrlBatch
from elmore.tasks.task import Labels
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.tokenize import Tokenizer, tokenize_marked
from elmore.transfer import to_device


class Srl(SpanTask[SrlBatch]):
    """Find the roles of a predicate: who did what to whom."""

    name = "srl"
    config = SrlConfig
    scheme = "iob2"

    def read(self, path: Path, config: SrlConfig, *, training: bool = False) -> list[SrlExample]:
        """Read CoNLL-2012 columns; for training, without long sentences."""
        limit = config.labeler.max_length
        return [e for e in read_frames(path) if not training or len(e.tokens) <= limit]

    def gold_spans(self, example: SrlExample) -> list[LabeledSpan]:
        """Return the roles, and the predicate itself."""
        return example.roles

    def scored_spans(self, spans: Iterable[LabeledSpan]) -> list["Argument"]:
        """Return arguments; the predicate itself does not count."""
        return arguments(spans)

    def build(self, config: SrlConfig, words: Words, labels: Labels) -> RoleLabeler:
        """Return the labeler."""
        return RoleLabeler(config.labeler, words, labels["tags"])

    def collate(
        self, examples: Sequence[SrlExample], encode: WordEncoder, labels: Labels
    ) -> SrlBatch:
        """Encode sentences, predicates and tags."""
        sentences = [example.tokens for example in examples]
        predicates = torch.tensor([example.predicate for example in examples])
        tags = self.gold_tags(examples, labels["tags"], padding=NO_TAG)
        return SrlBatch(
            encode(sentences), to_device(predicates, encode.device), to_device(tags, encode.device)
        )

    def gold_labels(self, example: SrlExample) -> list[str]:
        """Return the labels of the roles, without the predicate itself."""
        return [role.label for role in example.roles if role.label != PREDICATE]

    def parse(self, line: str, tokenize: Tokenizer) -> SrlExample:
        """Parse a sentence with its predicate in brackets, as in `She [gave] him a book .`."""
        split = partial(treebank_tokens, tokenize=tokenize)
        tokens, predicate = tokenize_marked(line, split, "She [gave] him a book .")
        return SrlExample(tokens, predicate, [], line)

    def as_json(
        self, example: SrlExample, prediction: SpanProbabilities, config: SrlConfig
    ) -> dict[str, Any]:
        """Return text, tokens, predicate, roles and tags."""
        text = example.text or " ".join(example.tokens)
        return {
            "text": text,
            "tokens": example.tokens,
            "predicate": example.predicate,
            "roles": spans_as_json(prediction, example.tokens, text),
            "tags": encode_tags(prediction, len(example.tokens), "iob2"),
        }


Argument = tuple[str, tuple[Span, ...]]
"""A label and the spans of an argument; nearly always there is one span."""


def arguments(roles: Iterable[LabeledSpan]) -> list[Argument]:
    """Join continuations as the CoNLL-2005 scorer does: C-ARG1 belongs to the preceding ARG1."""
    result: list[tuple[str, list[Span]]] = []
    latest: dict[str, list[Span]] = {}
    for label, start, end in sorted(roles, key=lambda role: role.start):
        base = label.removeprefix("C-")
        if base == label or base not in latest:
            latest[base] = []
            result.append((base, latest[base]))
        latest[base].append(Span(start, end))
    return [(label, tuple(spans)) for label, spans in result if label != PREDICATE]
