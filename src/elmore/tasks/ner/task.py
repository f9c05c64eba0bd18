"""The task of named-entity recognition (section 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.errors import InputError
from elmore.tasks.ner.config import NerConfig
from elmore.tasks.ner.data import NerExample, read_entities
from elmore.tasks.ner.model import NerTagger
from elmore.tasks.span_task import SpanTask
from elmore.tasks.spans import LabeledSpan, SpanProbabilities, encode_tags, spans_as_json
from elmore.tasks.tag.model import TagBatch
from elmore.tasks.task import Labels, TextTask
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.tokenize import Tokenizer
from elmore.transfer import to_device


class Ner(SpanTask[TagBatch], TextTask[Any, TagBatch, SpanProbabilities]):
    """Find the named entities of a sentence and their types."""

    name = "ner"
    config = NerConfig
    scheme = "bioes"

    def read(self, path: Path, config: NerConfig, *, training: bool = False) -> list[NerExample]:
        """Read CoNLL columns."""
        return read_entities(path)

    def gold_spans(self, example: NerExample) -> list[LabeledSpan]:
        """Return the entities."""
        return example.entities

    def labels(self, examples: Sequence[NerExample]) -> Labels:
        """Return the BIOES tags of all entity types."""
        if not any(example.entities for example in examples):
            raise InputError("no entities in the training examples; expected tags such as B-PER")
        return super().labels(examples)

    def build(self, config: NerConfig, words: Words, labels: Labels) -> NerTagger:
        """Return the tagger."""
        return NerTagger(config.tagger, words, labels["tags"])

    def collate(
        self, examples: Sequence[NerExample], encode: WordEncoder, labels: Labels
    ) -> TagBatch:
        """Encode sentences and tags."""
        tags = self.gold_tags(examples, labels["tags"], padding=0)
        words = encode([example.tokens for example in examples])
        return TagBatch(words, to_device(tags, encode.device))

    def parse(self, line: str, tokenize: Tokenizer) -> NerExample:
        """Parse a sentence."""
        return NerExample(treebank_tokens(line, tokenize), [], line)

    def as_json(
        self, example: NerExample, prediction: SpanProbabilities, config: NerConfig
    ) -> dict[str, Any]:
        """Return text, tokens, entities and tags."""
        text = example.text or " ".join(example.tokens)
        return {
            "text": text,
            "tokens": example.tokens,
            "entities": spans_as_json(prediction, example.tokens, text),
            "tags": encode_tags(prediction, len(example.tokens), config.tagger.scheme),
        }
