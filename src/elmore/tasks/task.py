"""The interface of a task: reading data, building the model, scoring and showing predictions.

Task objects have no state. `elmore.tasks.TASKS` lists those of elmore.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from elmore.tasks.config import TaskConfig
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenization, Tokenizer

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")
Batch = TypeVar("Batch")

Labels = dict[str, list[str]]
"""What a model needs to know of the training examples, by name: tags, classes, genres."""


class TaskModel(nn.Module, ABC, Generic[Batch, Prediction]):
    """A model that computes the loss and the predictions of a batch."""

    words: Words
    """Word representations; the caller builds them."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Return the loss, averaged over the examples of a batch."""

    @abstractmethod
    def predict(self, batch: Batch) -> list[Prediction]:
        """Return one prediction per example of a batch."""


class Task(ABC, Generic[Example, Batch, Prediction]):
    """How to read the data of a task, build its model, and score and show its predictions.

    Subclass it to add a task.
    """

    name: ClassVar[str]

    config: ClassVar[type[TaskConfig]]
    """Settings; docs/deviations.md explains defaults that differ from the paper."""

    score_name: ClassVar[str]
    """The score that selects the best weights."""

    inputs: ClassVar[tuple[str, ...]] = ("text",)
    """Names of the texts of an example."""

    has_own_tokenizer: ClassVar[bool] = False
    """Whether `parse` ignores its tokenizer, because the task has one of its own."""

    @abstractmethod
    def read(self, path: Path, config: Any, *, training: bool = False) -> list[Example]:
        """Read examples from a file in the standard format of the task.

        With `training`, tasks may add, shorten or leave out examples.
        """

    def tokenization(self, config: Any) -> Tokenization | None:
        """Return the tokenization of raw text in the settings, or None for that of the biLM."""
        return None

    def with_bilm_language(self, config: Any, of_bilm: Tokenization | None) -> Any:
        """Return the settings for training; a language that is not set becomes the biLM's.

        By default, the settings do not change. A task whose `read` tokenizes text overrides this.
        """
        return config

    @abstractmethod
    def texts(self, example: Example) -> Sequence[Sentence]:
        """Return the tokenized sentences of an example."""

    def vocabulary_texts(self, example: Example) -> Sequence[Sentence]:
        """Return the sentences in which words are counted for `words.min_count`.

        By default those of `texts`. A task that trains on parts of sentences overrides this, so
        that the words of a sentence count once.
        """
        return self.texts(example)

    @abstractmethod
    def labels(self, examples: Sequence[Example]) -> Labels:
        """Return the labels of the training examples."""

    @abstractmethod
    def build(self, config: Any, words: Words, labels: Labels) -> TaskModel[Batch, Prediction]:
        """Return the model with its initial weights."""

    @abstractmethod
    def collate(self, examples: Sequence[Example], encode: WordEncoder, labels: Labels) -> Batch:
        """Convert examples, labeled or not, to tensors on the encoder's device."""

    @abstractmethod
    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Return the scores of predictions; higher is better, and 1 is perfect."""

    def gold_labels(self, example: Example) -> Sequence[str] | None:
        """Return the label of each gold span, or the gold class.

        With them, data without labels or with unknown ones is detected. None, the default, means
        that there is nothing to check.
        """
        return None

    def scores_by_label(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
    ) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support of each label, if the task has labels."""
        return {}

    def confusion_matrix(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
    ) -> dict[str, dict[str, int]]:
        """Return how many examples of each class were predicted as each class, for classifiers."""
        return {}

    @abstractmethod
    def parse(self, line: str, tokenize: Tokenizer) -> Example:
        """Parse an unlabeled example from a line of text that is not blank.

        Raises:
            InputError: If the line does not have the expected format.
        """

    def parse_texts(self, texts: Sequence[str], tokenize: Tokenizer) -> Example:
        """Parse an unlabeled example from its texts, one for each of `inputs`.

        A task with more than one text overrides this.
        """
        return self.parse(texts[0], tokenize)

    @abstractmethod
    def show(self, example: Example, prediction: Prediction) -> str:
        """Return a prediction for display in a terminal, in rich's markup."""

    @abstractmethod
    def as_json(self, example: Example, prediction: Prediction, config: Any) -> dict[str, Any]:
        """Return a prediction as a JSON-serializable dict."""


class TextTask(Task[Example, Batch, Prediction]):
    """A task whose settings include the tokenization of raw text: `data`, a `TokenizerConfig`."""

    def tokenization(self, config: Any) -> Tokenization | None:
        """Return the tokenization in the settings; not in tasks of older versions."""
        return None if config.data.language is None else config.data.tokenization

    def with_bilm_language(self, config: Any, of_bilm: Tokenization | None) -> Any:
        """Fill in the tokenizer and the language of the biLM."""
        return replace(config, data=config.data.for_model(of_bilm))
