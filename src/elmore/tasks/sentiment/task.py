"""The task of sentiment classification (section 4)."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.markup import escape

from elmore.errors import InputError
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
from elmore.text.tokenize import Tokenization, Tokenizer, choose_tokenization, get_tokenizer


class Sentiment(ClassificationTask[SentimentExample, SentimentBatch]):
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

    def tokenization(self, config: SentimentConfig) -> Tokenization | None:
        """Return the tokenization of the training sentences; not in tasks of older versions."""
        if config.data.language is None:
            return None
        return choose_tokenization(None, config.data.tokenizer, config.data.language)

    def with_bilm_language(
        self, config: SentimentConfig, of_bilm: Tokenization | None
    ) -> SentimentConfig:
        """Fill in the tokenizer and the language of the biLM."""
        chosen = choose_tokenization(of_bilm, config.data.tokenizer, config.data.language)
        return replace(config, data=replace(config.data, **asdict(chosen)))

    def texts(self, example: SentimentExample) -> Sequence[Sentence]:
        """Return the sentence."""
        return [example.tokens]

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
