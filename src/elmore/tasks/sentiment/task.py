"""Sentiment analysis (section 4): the task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.errors import InputError
from elmore.tasks.classes import Answer, accuracy, best, numbers_of, show_class
from elmore.tasks.sentiment.config import SentimentConfig
from elmore.tasks.sentiment.data import SCALE, SentimentExample, read_sentiment
from elmore.tasks.sentiment.model import BCN, SentimentBatch
from elmore.tasks.show import escape
from elmore.tasks.task import Labels, Task
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer


class Sentiment(Task[SentimentExample, SentimentBatch, Answer]):
    """Say how positive or negative a sentence is."""

    name = "sentiment"
    config = SentimentConfig
    score_name = "accuracy"

    def read(
        self, path: Path, config: SentimentConfig, *, training: bool = False
    ) -> list[SentimentExample]:
        """Read trees or labeled lines; for training, if asked to, with the phrases of trees."""
        return read_sentiment(
            path,
            classes=config.data.classes,
            phrases=training and config.data.train_on == "phrases",
            min_phrase=config.data.min_phrase,
        )

    def texts(self, example: SentimentExample) -> Sequence[Sentence]:
        """Return the sentence."""
        return [example.tokens]

    def labels(self, examples: Sequence[SentimentExample]) -> Labels:
        """Return the classes that occur, from the most negative one on."""
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
            numbers_of((e.label for e in examples), labels["classes"], encode.device),
        )

    def score(
        self, examples: Sequence[SentimentExample], predictions: Sequence[Answer]
    ) -> dict[str, float]:
        """Return the share of sentences with the right class."""
        return accuracy((example.label for example in examples), predictions)

    def parse(self, line: str, tokenize: Tokenizer) -> SentimentExample:
        """Read a sentence."""
        tokens = treebank_tokens(line, tokenize)
        if not tokens:
            raise InputError("expected a sentence a line, got an empty line")
        return SentimentExample(tokens, "")

    def show(self, example: SentimentExample, prediction: Answer) -> str:
        """Return the class before the sentence."""
        return f"{show_class(prediction)}  {escape(' '.join(example.tokens))}"

    def as_json(
        self, example: SentimentExample, prediction: Answer, config: SentimentConfig
    ) -> dict[str, Any]:
        """Return the class, and the probabilities of all."""
        return {
            "tokens": example.tokens,
            "label": best(prediction),
            "probabilities": prediction,
        }
