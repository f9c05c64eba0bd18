"""The component `elmore_classifier`: a trained classify or sentiment task that sets `doc.cats`."""

from collections.abc import Iterable, Iterator
from typing import Any

from spacy.scorer import Scorer
from spacy.tokens import Doc
from spacy.training import Example

from elmore.integrations.spacy.task import TaskComponent
from elmore.tasks.classify.model import MultiLabelBCN
from elmore.tasks.classify.task import Classify
from elmore.tasks.sentiment.task import Sentiment


class ElmoClassifier(TaskComponent):
    """Sets the probability of each label in `doc.cats`.

    The task gets the text of the document and tokenizes it as in training, so the probabilities are
    those of `elmore predict`. A document without words gets none.

    Args:
        name: Name of the component.
        model: Folder of a trained classify or sentiment task.
        bilm: See `elmore.tasks.load`.
        device: See `elmore.tasks.load`.
        precision: See `elmore.tasks.load`.
    """

    kinds = (Classify, Sentiment)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels."""
        return tuple(self.task.labels["classes"])

    def annotate(self, docs: list[Doc]) -> Iterator[Doc]:
        """Set the labels of a batch of documents."""
        outcomes = self.task.outcomes(doc.text for doc in docs)
        for doc, outcome in zip(docs, outcomes, strict=True):
            doc.cats |= outcome.prediction or {}
            yield doc

    def score(self, examples: Iterable[Example], **_: Any) -> dict[str, Any]:
        """Return precision, recall, F1 and AUC of the labels, for `nlp.evaluate`."""
        return Scorer.score_cats(
            examples,
            "cats",
            labels=self.labels,
            multi_label=isinstance(self.task.model, MultiLabelBCN),
        )
