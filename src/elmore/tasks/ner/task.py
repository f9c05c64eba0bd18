"""The task of named-entity recognition (section 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.errors import InputError
from elmore.tasks.ner.config import NerConfig
from elmore.tasks.ner.data import NerExample, read_entities
from elmore.tasks.ner.model import NerTagger
from elmore.tasks.scores import scores_by_label, span_confusion_matrix, span_f1
from elmore.tasks.show import mark_spans
from elmore.tasks.spans import (
    SpanProbabilities,
    all_tags,
    encode_tags,
    spans_as_json,
    tag_ids,
)
from elmore.tasks.tag.model import TagBatch
from elmore.tasks.task import Labels, TextTask
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer
from elmore.transfer import to_device


class Ner(TextTask[NerExample, TagBatch, SpanProbabilities]):
    """Find the named entities of a sentence and their types."""

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
        """Return the BIOES tags of all entity types."""
        types = {entity.label for example in examples for entity in example.entities}
        if not types:
            raise InputError("no entities in the training examples; expected tags such as B-PER")
        return {"tags": all_tags(types, "bioes")}

    def build(self, config: NerConfig, words: Words, labels: Labels) -> NerTagger:
        """Return the tagger."""
        return NerTagger(config.tagger, words, labels["tags"])

    def collate(
        self, examples: Sequence[NerExample], encode: WordEncoder, labels: Labels
    ) -> TagBatch:
        """Encode sentences and tags."""
        sentences = [example.tokens for example in examples]
        tags = tag_ids(
            [example.entities for example in examples],
            list(map(len, sentences)),
            labels["tags"],
            "bioes",
            padding=0,
        )
        return TagBatch(encode(sentences), to_device(tags, encode.device))

    def score(
        self, examples: Sequence[NerExample], predictions: Sequence[SpanProbabilities]
    ) -> dict[str, float]:
        """Return precision, recall and F1 of entities."""
        return span_f1((example.entities for example in examples), predictions)

    def gold_labels(self, example: NerExample) -> list[str]:
        """Return the types of the entities."""
        return [entity.label for entity in example.entities]

    def scores_by_label(
        self, examples: Sequence[NerExample], predictions: Sequence[SpanProbabilities]
    ) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support of each type."""
        return scores_by_label((example.entities for example in examples), predictions)

    def confusion_matrix(
        self, examples: Sequence[NerExample], predictions: Sequence[SpanProbabilities]
    ) -> dict[str, dict[str, int]]:
        """Return the confusion matrix of entities with equal boundaries; `O` is none."""
        return span_confusion_matrix((example.entities for example in examples), predictions)

    def parse(self, line: str, tokenize: Tokenizer) -> NerExample:
        """Parse a sentence."""
        return NerExample(treebank_tokens(line, tokenize), [], line)

    def show(self, example: NerExample, prediction: SpanProbabilities) -> str:
        """Return the sentence with its entities marked."""
        return mark_spans(example.tokens, prediction)

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
