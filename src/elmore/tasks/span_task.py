"""Tasks that predict labeled spans of a sentence: entities, or the roles of a predicate."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int64

from elmore.tasks.scores import scores_by_label, span_confusion_matrix, span_f1
from elmore.tasks.show import mark_spans
from elmore.tasks.spans import LabeledSpan, SpanProbabilities, all_tags, tag_ids
from elmore.tasks.task import Batch, Labels, Task
from elmore.text.sentences import Sentence

# B sentences, T words.


class SpanTask(Task[Any, Batch, SpanProbabilities]):
    """A task whose examples have `tokens`, and whose predictions are spans with labels."""

    score_name = "f1"

    scheme: ClassVar[Literal["iob2", "bioes"]]
    """Tagging scheme of the model."""

    @abstractmethod
    def gold_spans(self, example: Any) -> list[LabeledSpan]:
        """Return the gold spans of an example."""

    def scored_spans(self, spans: Iterable[LabeledSpan]) -> list[Any]:
        """Return what is scored, of gold or predicted spans: tuples that start with a label."""
        return list(spans)

    def texts(self, example: Any) -> Sequence[Sentence]:
        """Return the sentence."""
        return [example.tokens]

    def labels(self, examples: Sequence[Any]) -> Labels:
        """Return the tags of all labels of spans."""
        labels = {span.label for example in examples for span in self.gold_spans(example)}
        return {"tags": all_tags(labels, self.scheme)}

    def gold_tags(
        self, examples: Sequence[Any], tags: Sequence[str], padding: int
    ) -> Int64[np.ndarray, "B T"]:
        """Return the indices of the gold tags of examples, see `tag_ids`."""
        spans = [self.gold_spans(example) for example in examples]
        lengths = [len(example.tokens) for example in examples]
        return tag_ids(spans, lengths, tags, self.scheme, padding=padding)

    def _scored(
        self, examples: Sequence[Any], predictions: Sequence[SpanProbabilities]
    ) -> tuple[list[Any], list[Any]]:
        gold = [self.scored_spans(self.gold_spans(example)) for example in examples]
        return gold, list(map(self.scored_spans, predictions))

    def score(
        self, examples: Sequence[Any], predictions: Sequence[SpanProbabilities]
    ) -> dict[str, float]:
        """Return precision, recall and F1 of spans."""
        return span_f1(*self._scored(examples, predictions))

    def gold_labels(self, example: Any) -> list[str]:
        """Return the labels of the gold spans."""
        return [span.label for span in self.gold_spans(example)]

    def scores_by_label(
        self, examples: Sequence[Any], predictions: Sequence[SpanProbabilities]
    ) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support of each label."""
        return scores_by_label(*self._scored(examples, predictions))

    def confusion_matrix(
        self, examples: Sequence[Any], predictions: Sequence[SpanProbabilities]
    ) -> dict[str, dict[str, int]]:
        """Return the confusion matrix of spans with equal boundaries; `O` is none."""
        return span_confusion_matrix(*self._scored(examples, predictions))

    def show(self, example: Any, prediction: SpanProbabilities) -> str:
        """Return the sentence with its spans marked."""
        return mark_spans(example.tokens, prediction)
