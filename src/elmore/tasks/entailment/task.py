"""Textual entailment (section 4): the task."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore.errors import InputError
from elmore.tasks.classes import Answer, accuracy, best, numbers_of, show_class
from elmore.tasks.entailment.config import EntailmentConfig
from elmore.tasks.entailment.data import EntailmentExample, parse_json, parse_pair, read_pairs
from elmore.tasks.entailment.model import ESIM, EntailmentBatch, balanced_weights
from elmore.tasks.show import escape
from elmore.tasks.task import Labels, Task
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer, TokenizerName, get_tokenizer


class Entailment(Task[EntailmentExample, EntailmentBatch, Answer]):
    """Say whether a hypothesis follows from a premise, contradicts it, or neither."""

    name = "entailment"
    config = EntailmentConfig
    score_name = "accuracy"

    def read(
        self, path: Path, config: EntailmentConfig, *, training: bool = False
    ) -> list[EntailmentExample]:
        """Read JSON lines as of SNLI, or a table as of SICK."""
        return read_pairs(path, get_tokenizer(config.data.tokenizer))

    def tokenizer(self, config: EntailmentConfig) -> TokenizerName:
        """Return the one of the training sentences."""
        return config.data.tokenizer

    def texts(self, example: EntailmentExample) -> Sequence[Sentence]:
        """Return both sentences."""
        return [example.premise, example.hypothesis]

    def labels(self, examples: Sequence[EntailmentExample]) -> Labels:
        """Return the classes, and how many examples each has."""
        counts = sorted(Counter(example.label for example in examples).items())
        return {
            "classes": [label for label, _ in counts],
            "counts": [str(count) for _, count in counts],
        }

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
            numbers_of((e.label for e in examples), labels["classes"], encode.device),
        )

    def score(
        self, examples: Sequence[EntailmentExample], predictions: Sequence[Answer]
    ) -> dict[str, float]:
        """Return the share of pairs with the right class."""
        return accuracy((example.label for example in examples), predictions)

    def parse(self, line: str, tokenize: Tokenizer) -> EntailmentExample:
        """Read `premise<TAB>hypothesis`, or a JSON object as of SNLI."""
        if line.lstrip().startswith("{"):
            example = parse_pair(parse_json(line), tokenize)
        else:
            premise, _, hypothesis = line.partition("\t")
            example = parse_pair({"sentence1": premise, "sentence2": hypothesis}, tokenize)
        if not example.premise or not example.hypothesis or line.count("\t") > 1:
            raise InputError(
                "expected a premise, a tab and a hypothesis, or a JSON object with sentence1 and "
                f"sentence2, got {line!r:.60}"
            )
        return example

    def show(self, example: EntailmentExample, prediction: Answer) -> str:
        """Return the class between the two sentences."""
        premise, hypothesis = (escape(" ".join(text)) for text in self.texts(example))
        return f"{premise}\n  {show_class(prediction)}: {hypothesis}"

    def as_json(
        self, example: EntailmentExample, prediction: Answer, config: EntailmentConfig
    ) -> dict[str, Any]:
        """Return the class, and the probabilities of all."""
        return {
            "premise": example.premise,
            "hypothesis": example.hypothesis,
            "label": best(prediction),
            "probabilities": prediction,
        }
