"""The task of tagging: a tag for each word of a sentence."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

from elmore.tasks.offsets import token_offsets
from elmore.tasks.scores import confusion_matrix, scores_by_label
from elmore.tasks.show import color_of
from elmore.tasks.tag.config import TagConfig
from elmore.tasks.tag.data import TagExample, read_tags
from elmore.tasks.tag.model import NO_TAG, PredictedTag, TagBatch, Tagger
from elmore.tasks.task import Labels, TextTask
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer
from elmore.transfer import to_device

Tags = list[PredictedTag]


class Tag(TextTask[TagExample, TagBatch, Tags]):
    """Assign a tag, such as a part of speech, to each word of a sentence."""

    name = "tag"
    config = TagConfig
    score_name = "accuracy"

    def read(self, path: Path, config: TagConfig, *, training: bool = False) -> list[TagExample]:
        """Read a column of a CoNLL file."""
        return read_tags(path, column=config.data.column, word_column=config.data.word_column)

    def texts(self, example: TagExample) -> Sequence[Sentence]:
        """Return the sentence."""
        return [example.tokens]

    def labels(self, examples: Sequence[TagExample]) -> Labels:
        """Return the tags that occur."""
        return {"classes": sorted({tag for example in examples for tag in example.tags})}

    def build(self, config: TagConfig, words: Words, labels: Labels) -> Tagger:
        """Return the tagger."""
        return Tagger(config.tagger, words, labels["classes"])

    def collate(
        self, examples: Sequence[TagExample], encode: WordEncoder, labels: Labels
    ) -> TagBatch:
        """Encode sentences and tags; a tag that no training example has counts as none."""
        words = encode([example.tokens for example in examples])
        index = {tag: i for i, tag in enumerate(labels["classes"])}
        ids = np.full(words.mask.shape, NO_TAG)
        for row, example in zip(ids, examples, strict=True):
            row[: len(example.tags)] = [index.get(tag, NO_TAG) for tag in example.tags]
        return TagBatch(words, to_device(ids, encode.device))

    def score(
        self, examples: Sequence[TagExample], predictions: Sequence[Tags]
    ) -> dict[str, float]:
        """Return the share of words whose tag is correct."""
        gold, predicted = _flat(examples, predictions)
        correct = sum(map(str.__eq__, gold, predicted))
        return {"accuracy": correct / max(len(gold), 1)}

    def gold_labels(self, example: TagExample) -> list[str]:
        """Return the tags."""
        return example.tags

    def scores_by_label(
        self, examples: Sequence[TagExample], predictions: Sequence[Tags]
    ) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support of each tag."""
        gold, predicted = _flat(examples, predictions)
        return scores_by_label([[(tag,)] for tag in gold], [[(tag,)] for tag in predicted])

    def confusion_matrix(
        self, examples: Sequence[TagExample], predictions: Sequence[Tags]
    ) -> dict[str, dict[str, int]]:
        """Return how many words with each gold tag were predicted to have each tag."""
        return confusion_matrix(*_flat(examples, predictions))

    def parse(self, line: str, tokenize: Tokenizer) -> TagExample:
        """Parse a sentence."""
        return TagExample(treebank_tokens(line, tokenize), [], line)

    def show(self, example: TagExample, prediction: Tags) -> str:
        """Return the sentence with the tag of each word after a slash."""
        pairs = zip(example.tokens, prediction, strict=True)
        return " ".join(
            f"{escape(token)}[{color_of(tag)}]/{escape(tag)}[/{color_of(tag)}]"
            for token, (tag, _) in pairs
        )

    def as_json(self, example: TagExample, prediction: Tags, config: TagConfig) -> dict[str, Any]:
        """Return text, tokens, their character offsets, tags and probabilities."""
        text = example.text or " ".join(example.tokens)
        return {
            "text": text,
            "tokens": example.tokens,
            "offsets": list(map(list, token_offsets(text, example.tokens))),
            "tags": [tag for tag, _ in prediction],
            "probabilities": [probability for _, probability in prediction],
        }


def _flat(
    examples: Sequence[TagExample], predictions: Sequence[Tags]
) -> tuple[list[str], list[str]]:
    """Return the gold and the predicted tags of all words."""
    gold = list(chain.from_iterable(example.tags for example in examples))
    return gold, [tag for prediction in predictions for tag, _ in prediction]
