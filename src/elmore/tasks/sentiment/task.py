"""The task of sentiment classification (section 4)."""

from collections.abc import Sequence
from pathlib import Path

from elmore.errors import InputError
from elmore.tasks.classes import class_ids
from elmore.tasks.classify.model import ClassifyBatch
from elmore.tasks.classify.task import TextClassification
from elmore.tasks.sentiment.config import SentimentConfig
from elmore.tasks.sentiment.data import SCALE, SentimentExample, read_sentiment
from elmore.tasks.task import Labels
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer, get_tokenizer


class Sentiment(TextClassification[SentimentExample]):
    """Decide how positive or negative a sentence is."""

    name = "sentiment"
    config = SentimentConfig

    def read(
        self, path: Path, config: SentimentConfig, *, training: bool = False
    ) -> list[SentimentExample]:
        """Read trees, labeled lines or a table; for training, with phrases of trees by default."""
        return read_sentiment(
            path,
            classes=config.data.classes,
            phrases=training and config.data.train_on == "phrases",
            min_phrase=config.data.min_phrase,
            tokenize=get_tokenizer(config.data.tokenizer, config.data.language),
        )

    def vocabulary_texts(self, example: SentimentExample) -> Sequence[Sentence]:
        """Return whole sentences only: the words of a phrase are counted in its sentence."""
        return [] if example.is_phrase else [example.tokens]

    def labels(self, examples: Sequence[SentimentExample]) -> Labels:
        """Return the classes that occur: the treebank's from negative to positive, then others.

        Raises:
            InputError: If some files have names of the treebank's classes and others numbers.
        """
        seen = {example.label for example in examples}
        numbers = sorted(filter(str.isdecimal, seen))
        if numbers and not seen.isdisjoint(SCALE):
            raise InputError(
                f"the label {numbers[0]} is not clear next to {min(seen.intersection(SCALE))!r}: "
                "write names instead of numbers, such as negative and positive"
            )
        return {"classes": [*filter(seen.__contains__, SCALE), *sorted(seen.difference(SCALE))]}

    def gold_labels(self, example: SentimentExample) -> list[str]:
        """Return the class."""
        return [example.label]

    def collate(
        self, examples: Sequence[SentimentExample], encode: WordEncoder, labels: Labels
    ) -> ClassifyBatch:
        """Encode sentences and classes."""
        return ClassifyBatch(
            encode([example.tokens for example in examples]),
            class_ids((e.label for e in examples), labels["classes"], encode.device),
        )

    def parse(self, line: str, tokenize: Tokenizer) -> SentimentExample:
        """Parse a sentence."""
        return SentimentExample(treebank_tokens(line, tokenize), "")
