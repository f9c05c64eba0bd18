"""The task of text classification, with any set of labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from rich.markup import escape

from elmore.tasks.classes import (
    ClassificationTask,
    ClassProbabilities,
    LabelProbabilities,
    class_as_json,
    predicted_labels,
    show_class,
)
from elmore.tasks.classify.config import ClassifyConfig
from elmore.tasks.classify.data import ClassifyExample, read_examples
from elmore.tasks.classify.model import BCN, ClassifyBatch, MultiLabelBCN
from elmore.tasks.scores import span_f1
from elmore.tasks.task import Labels, TextTask
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer, get_tokenizer
from elmore.transfer import to_device


class TokenizedExample(Protocol):
    """A tokenized text."""

    @property
    def tokens(self) -> list[str]:
        """The tokens."""


Example = TypeVar("Example", bound=TokenizedExample)


class TextClassification(
    ClassificationTask[Example, ClassifyBatch], TextTask[Example, ClassifyBatch, ClassProbabilities]
):
    """Classification of texts with the biattentive classification network."""

    def texts(self, example: Example) -> Sequence[Sentence]:
        """Return the text."""
        return [example.tokens]

    def build(self, config: Any, words: Words, labels: Labels) -> BCN:
        """Return the network."""
        return BCN(config.network, words, labels["classes"])

    def show(self, example: Example, prediction: ClassProbabilities) -> str:
        """Return the predicted class and the text."""
        return f"{show_class(prediction)}  {escape(' '.join(example.tokens))}"

    def as_json(
        self, example: Example, prediction: ClassProbabilities, config: Any
    ) -> dict[str, Any]:
        """Return tokens, the predicted class and all probabilities."""
        return {"tokens": example.tokens, **class_as_json(prediction)}


class Classify(TextClassification[ClassifyExample]):
    """Assign one of several labels to a text, or any number of them."""

    name = "classify"
    config = ClassifyConfig

    def read(
        self, path: Path, config: ClassifyConfig, *, training: bool = False
    ) -> list[ClassifyExample]:
        """Read TSV, CSV or JSON lines."""
        data = config.data
        return read_examples(
            path,
            get_tokenizer(data.tokenizer, data.language),
            text_column=data.text_column,
            label_column=data.label_column,
            separator=data.separator if data.multi_label else None,
        )

    def labels(self, examples: Sequence[ClassifyExample]) -> Labels:
        """Return the labels that occur."""
        return {"classes": sorted({label for example in examples for label in example.labels})}

    def gold_labels(self, example: ClassifyExample) -> list[str]:
        """Return the labels."""
        return example.labels

    def build(self, config: ClassifyConfig, words: Words, labels: Labels) -> BCN:
        """Return the network."""
        network = MultiLabelBCN if config.data.multi_label else BCN
        return network(config.network, words, labels["classes"])

    def collate(
        self, examples: Sequence[ClassifyExample], encode: WordEncoder, labels: Labels
    ) -> ClassifyBatch:
        """Encode texts and labels; labels that no training example has are left out."""
        index = {label: i for i, label in enumerate(labels["classes"])}
        classes = np.zeros((len(examples), len(index)), np.float32)
        for row, example in zip(classes, examples, strict=True):
            row[[index[label] for label in example.labels if label in index]] = 1
        words = encode([example.tokens for example in examples])
        return ClassifyBatch(words, to_device(classes, encode.device))

    def score(
        self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassProbabilities]
    ) -> dict[str, float]:
        """Return accuracy and macro F1; of several labels, micro F1, too.

        Of several labels, accuracy is the share of texts whose labels are all correct. Macro F1 is
        the mean over the labels that occur in the gold data or in the predictions.
        """
        rows = self.scores_by_label(examples, predictions).values()
        scores = {
            **super().score(examples, predictions),
            "macro_f1": sum(row["f1"] for row in rows) / max(len(rows), 1),
        }
        if any(isinstance(p, LabelProbabilities) for p in predictions):
            gold = (example.labels for example in examples)
            scores["micro_f1"] = span_f1(gold, map(predicted_labels, predictions))["f1"]
        return scores

    def parse(self, line: str, tokenize: Tokenizer) -> ClassifyExample:
        """Parse a text."""
        return ClassifyExample(treebank_tokens(line, tokenize), [], line)

    def as_json(
        self, example: ClassifyExample, prediction: ClassProbabilities, config: ClassifyConfig
    ) -> dict[str, Any]:
        """Return text, tokens, the predicted label or labels, and all probabilities."""
        text = example.text or " ".join(example.tokens)
        return {"text": text, **super().as_json(example, prediction, config)}
