"""The task of textual entailment (section 4)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
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
from elmore.tasks.entailment.config import EntailmentConfig
from elmore.tasks.entailment.data import EntailmentExample, parse_pair, read_pairs
from elmore.tasks.entailment.model import ESIM, EntailmentBatch, balanced_weights
from elmore.tasks.json_input import parse_json
from elmore.tasks.task import Labels
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenization, Tokenizer, choose_tokenization, get_tokenizer

_EXPECTED = (
    "expected a premise, a tab and a hypothesis, or a JSON object with premise and hypothesis"
)


class Entailment(ClassificationTask[EntailmentExample, EntailmentBatch]):
    """Decide whether a premise entails a hypothesis, contradicts it, or neither."""

    name = "entailment"
    config = EntailmentConfig
    inputs = ("premise", "hypothesis")

    def read(
        self, path: Path, config: EntailmentConfig, *, training: bool = False
    ) -> list[EntailmentExample]:
        """Read JSON lines (SNLI, MultiNLI) or a table with a header (SICK)."""
        return read_pairs(path, get_tokenizer(config.data.tokenizer, config.data.language))

    def tokenization(self, config: EntailmentConfig) -> Tokenization:
        """Return the tokenization of the training sentences."""
        return choose_tokenization(None, config.data.tokenizer, config.data.language)

    def with_bilm_language(
        self, config: EntailmentConfig, of_bilm: Tokenization | None
    ) -> EntailmentConfig:
        """Fill in the language of the sentences."""
        language = config.data.language or (of_bilm or Tokenization()).language
        return replace(config, data=replace(config.data, language=language))

    def texts(self, example: EntailmentExample) -> Sequence[Sentence]:
        """Return both sentences."""
        return [example.premise, example.hypothesis]

    def labels(self, examples: Sequence[EntailmentExample]) -> Labels:
        """Return the classes and their numbers of examples."""
        counts = sorted(Counter(example.label for example in examples).items())
        return {
            "classes": [label for label, _ in counts],
            "counts": [str(count) for _, count in counts],
        }

    def gold_labels(self, example: EntailmentExample) -> list[str]:
        """Return the relation."""
        return [example.label]

    def build(self, config: EntailmentConfig, words: Words, labels: Labels) -> ESIM:
        """Return the network."""
        balanced = config.data.class_weights == "balanced"
        counts = [int(count) if balanced else 1 for count in labels["counts"]]
        return ESIM(config.network, words, labels["classes"], balanced_weights(counts))

    def collate(
        self, examples: Sequence[EntailmentExample], encode: WordEncoder, labels: Labels
    ) -> EntailmentBatch:
        """Encode premises, hypotheses and classes."""
        premises = [example.premise for example in examples]
        return EntailmentBatch(
            encode([*premises, *(example.hypothesis for example in examples)]),
            class_ids((e.label for e in examples), labels["classes"], encode.device),
        )

    def parse(self, line: str, tokenize: Tokenizer) -> EntailmentExample:
        """Parse `premise<TAB>hypothesis`, or a JSON object with both or with SNLI's names."""
        if line.lstrip().startswith("{"):
            return _require_both(parse_pair(parse_json(line), tokenize), line)
        texts = line.split("\t")
        if len(texts) != 2:
            raise InputError(f"{_EXPECTED}, got {line!r:.60}")
        return self.parse_texts(texts, tokenize)

    def parse_texts(self, texts: Sequence[str], tokenize: Tokenizer) -> EntailmentExample:
        """Tokenize a premise and a hypothesis."""
        row = dict(zip(("sentence1", "sentence2"), texts, strict=True))
        return _require_both(parse_pair(row, tokenize), " ".join(texts))

    def show(self, example: EntailmentExample, prediction: ClassProbabilities) -> str:
        """Return the premise, and the predicted class with the hypothesis below it."""
        premise, hypothesis = (escape(" ".join(text)) for text in self.texts(example))
        return f"{premise}\n  {show_class(prediction)}: {hypothesis}"

    def as_json(
        self,
        example: EntailmentExample,
        prediction: ClassProbabilities,
        config: EntailmentConfig,
    ) -> dict[str, Any]:
        """Return both sentences, the predicted class and all probabilities."""
        return {
            "premise": example.premise,
            "hypothesis": example.hypothesis,
            **class_as_json(prediction),
        }


def _require_both(example: EntailmentExample, source: str) -> EntailmentExample:
    if not example.premise or not example.hypothesis:
        raise InputError(f"{_EXPECTED}, got {source!r:.60}")
    return example
