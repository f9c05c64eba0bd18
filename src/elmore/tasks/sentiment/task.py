"""The task of sentiment classification (section 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from elmore.tasks.classes import (
    ClassificationTask,
    ClassProbabilities,
    class_as_json,
    class_ids,
    show_class,
)
from elmore.tasks.sentiment.config import SentimentConfig
from elmore.tasks.sentiment.data import SCALE, SentimentExample, read_sentiment
from elmore.tasks.sentiment.model import BCN, SentimentBatch
from elmore.tasks.task import Labels
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer


class Sentiment(ClassificationTask[SentimentExample, SentimentBatch]):
    """Decide how positive or negative a sentence is."""

    name = "sentiment"
    config = SentimentConfig

    def read(
        self, path: Path, config: SentimentConfig, *, training: bool = False
    ) -> list[SentimentExample]:
        """Read trees or labeled lines; for training, with the phrases of trees by default."""
        return read_sentiment(
            path,
            classes=config.data.classes,
            phrases=training and config.data.train_on == "phrases",
            min_phrase=config.data.min_phrase,
        )

    def texts(self, example: SentimentExample) -> Sequence[Sentence]:
        """Return the sentence."""
        return [example.tokens]

    def vocabulary_texts(self, example: SentimentExample) -> Sequence[Sentence]:
        """Return whole sentences only: the words of a phrase are counted in its sentence."""
        return [] if example.is_phrase else [example.tokens]

    def labels(self, examples: Sequence[SentimentExample]) -> Labels:
        """Return the classes that occur, from negative to positive."""
        seen = {example.label for example in examples}
        return {"classes": [name for name in SCALE if name in seen]}

    def build(self, config: SentimentConfig, words: Words, labels: Labels) -> BCN:
        """Return the network."""
        return BCN(config.network, words, labels["classes"])

    def collate(
        self, examples: Sequence[SentimentExample], encode: WordEncoder, labels: Labels
    ) -> SentimentBatch:
        """Encode sentences and classes."""
        return SentimentBatch(
            encode([example.tokens for example in examples]),
            class_ids((e.label for e in examples), labels["classes"], encode.device),
        )

    def parse(self, line: str, tokenize: Tokenizer) -> SentimentExample:
        """Parse a sentence."""
        return SentimentExample(treebank_tokens(line, tokenize), "")

    def show(self, example: SentimentExample, prediction: ClassProbabilities) -> str:
        """Return the predicted class and the sentence."""
        return f"{show_class(prediction)}  {escape(' '.join(example.tokens))}"

    def as_json(
        self, example: SentimentExample, prediction: ClassProbabilities, config: SentimentConfig
    ) -> dict[str, Any]:
        """Return tokens, the predicted class and all probabilities."""
        return {
            "tokens": example.tokens,
            **class_as_json(prediction),
        }
