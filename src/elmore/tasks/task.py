"""What a task is: how its data is read, its model built, its answers scored and shown.

Six tasks, one shape. A task is an object without state; `elmore.tasks.TASKS` lists them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from elmore.tasks.config import TaskConfig
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenizer, TokenizerName

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")
Batch = TypeVar("Batch")

Labels = dict[str, list[str]]
"""What is counted from the training examples, by name: tags, classes, genres."""


class TaskModel(nn.Module, ABC, Generic[Batch, Prediction]):
    """A model that learns from a batch by its loss, and answers one."""

    words: Words
    """What a word is to it; built by the caller."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Return the mean loss of a batch's examples."""

    @abstractmethod
    def predict(self, batch: Batch) -> list[Prediction]:
        """Return an answer for each of a batch's examples."""


class Task(ABC, Generic[Example, Batch, Prediction]):
    """The parts of a task that differ from task to task."""

    name: ClassVar[str]

    config: ClassVar[type[TaskConfig]]
    """Its settings; where the defaults are not the paper's, docs/deviations.md says why."""

    score_name: ClassVar[str]
    """The score that decides which weights are the best."""

    @abstractmethod
    def read(self, path: Path, config: Any, *, training: bool = False) -> list[Example]:
        """Read examples from a file in the standard format; for training there may be more."""

    def tokenizer(self, config: Any) -> TokenizerName | None:  # noqa: ARG002
        """Return how typed text becomes tokens, or None if `parse` has a way of its own."""
        return "moses"

    @abstractmethod
    def texts(self, example: Example) -> Sequence[Sentence]:
        """Return the sentences of an example, as tokens."""

    @abstractmethod
    def labels(self, examples: Sequence[Example]) -> Labels:
        """Return what a model must know of its training examples besides their words."""

    @abstractmethod
    def build(self, config: Any, words: Words, labels: Labels) -> TaskModel[Batch, Prediction]:
        """Return the model, with its first weights."""

    @abstractmethod
    def collate(self, examples: Sequence[Example], encode: WordEncoder, labels: Labels) -> Batch:
        """Turn examples, with or without their answers, into tensors on the encoder's device."""

    @abstractmethod
    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Compare answers with those of the examples; higher is better, 1 is perfect."""

    @abstractmethod
    def parse(self, line: str, tokenize: Tokenizer) -> Example:
        """Read an example without its answer from a line that somebody typed."""

    @abstractmethod
    def show(self, example: Example, prediction: Prediction) -> str:
        """Return an answer for people, as text with rich's markup."""

    @abstractmethod
    def as_json(self, example: Example, prediction: Prediction, config: Any) -> dict[str, Any]:
        """Return an answer for programs."""
