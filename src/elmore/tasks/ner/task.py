"""Named-entity recognition (section 4): the task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmore.errors import InputError
from elmore.tasks.ner.config import NerConfig
from elmore.tasks.ner.data import NerExample, read_entities
from elmore.tasks.ner.model import NerBatch, NerTagger
from elmore.tasks.show import mark_spans
from elmore.tasks.spans import Span, span_f1, tags_of
from elmore.tasks.task import Labels, Task
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer
from elmore.transfer import to_device


class Ner(Task[NerExample, NerBatch, list[Span]]):
    """Find the names in a sentence, and say what they name."""

    name = "ner"
    config = NerConfig
    score_name = "f1"

    def read(self, path: Path, config: NerConfig, *, training: bool = False) -> list[NerExample]:
        """Read CoNLL columns."""
        return read_entities(path)

    def texts(self, example: NerExample) -> Sequence[Sentence]:
        """Return the sentence."""
        return [example.tokens]

    def labels(self, examples: Sequence[NerExample]) -> Labels:
        """Return the tags of all kinds of entities."""
        kinds = sorted({entity.label for example in examples for entity in example.entities})
        if not kinds:
            raise InputError("no entities in the training examples; expected tags such as B-PER")
        return {"tags": ["O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BIES")]}

    def build(self, config: NerConfig, words: Words, labels: Labels) -> NerTagger:
        """Return the tagger."""
        return NerTagger(config.tagger, words, labels["tags"])

    def collate(
        self, examples: Sequence[NerExample], encode: WordEncoder, labels: Labels
    ) -> NerBatch:
        """Encode sentences and tags."""
        words = encode([example.tokens for example in examples])
        number = {tag: i for i, tag in enumerate(labels["tags"])}
        tags = np.zeros(words.ids.shape, dtype=np.int64)
        for row, example in zip(tags, examples, strict=True):
            of_words = tags_of(example.entities, len(example.tokens), "bioes")
            # A kind of entity that was never seen in training can't be found either.
            row[: len(of_words)] = [number.get(tag, 0) for tag in of_words]
        return NerBatch(words, to_device(tags, encode.device))

    def score(
        self, examples: Sequence[NerExample], predictions: Sequence[list[Span]]
    ) -> dict[str, float]:
        """Return the F1 of whole entities."""
        return span_f1((example.entities for example in examples), predictions)

    def parse(self, line: str, tokenize: Tokenizer) -> NerExample:
        """Read a sentence."""
        tokens = treebank_tokens(line, tokenize)  # as data sets of this task have them
        if not tokens:
            raise InputError("expected a sentence a line, got an empty line")
        return NerExample(tokens, [])

    def show(self, example: NerExample, prediction: list[Span]) -> str:
        """Return the sentence with its entities marked."""
        return mark_spans(example.tokens, prediction)

    def as_json(
        self, example: NerExample, prediction: list[Span], config: NerConfig
    ) -> dict[str, Any]:
        """Return the entities, and all tags."""
        return {
            "tokens": example.tokens,
            "entities": [
                {**span._asdict(), "text": " ".join(example.tokens[span.start : span.end])}
                for span in prediction
            ],
            "tags": tags_of(prediction, len(example.tokens), config.tagger.scheme),
        }
