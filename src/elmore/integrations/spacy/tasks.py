"""The components with a trained task: `elmore_ner` and `elmore_classifier`."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from spacy.scorer import Scorer, get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example

from elmore.checkpoint.hash import hash_weights
from elmore.embedder import Precision
from elmore.errors import InputError
from elmore.integrations.spacy.component import Component, Sentence, split_sentences
from elmore.tasks.classify.model import MultiLabelBCN
from elmore.tasks.classify.task import Classify
from elmore.tasks.ner.data import NerExample
from elmore.tasks.ner.task import Ner
from elmore.tasks.saved import load
from elmore.tasks.sentiment.task import Sentiment
from elmore.tasks.spans import SpanProbabilities
from elmore.tasks.task import Task

if not Span.has_extension("elmo_probability"):
    Span.set_extension("elmo_probability", default=None)


class TaskComponent(Component):
    """A component with a trained task.

    Args:
        name: Name of the component.
        model: Folder of the trained task.
        bilm: See `elmore.tasks.load`.
        device: See `elmore.tasks.load`.
        precision: See `elmore.tasks.load`.
    """

    kinds: ClassVar[tuple[type[Task[Any, Any, Any]], ...]]
    """The tasks that the component can use."""

    def __init__(
        self,
        name: str,
        *,
        model: str,
        bilm: str | None = None,
        device: str = "auto",
        precision: Precision | None = None,
    ) -> None:
        self.task = load(model, bilm=bilm, device=device, precision=precision)
        if not isinstance(self.task.task, self.kinds):
            expected = " or ".join(kind.name for kind in self.kinds)
            raise InputError(f"{model} is a task of {self.task.task.name}; expected {expected}")
        settings = {"model": model, "bilm": bilm, "device": device, "precision": precision}
        super().__init__(name, settings, hash_weights(self.task.model.state_dict()))


class ElmoNer(TaskComponent):
    """Adds entities to `doc.ents`; those of earlier components stay.

    The task gets the tokens of spaCy, sentence by sentence, so entities are aligned with them.
    `ent._.elmo_probability` has the probability of an entity.
    """

    kinds = (Ner,)

    @property
    def labels(self) -> tuple[str, ...]:
        """The types of entities."""
        types = {tag.partition("-")[2] for tag in self.task.labels["tags"]}
        return tuple(sorted(types - {""}))

    def annotate(self, docs: list[Doc]) -> Iterator[Doc]:
        """Set the entities of a batch of documents."""
        sentences = [split_sentences(doc) for doc in docs]
        examples = [NerExample(words, []) for part in sentences for words, _ in part]
        predictions = iter(self.task.predict(examples))
        for doc, part in zip(docs, sentences, strict=True):
            entities = list(doc.ents)
            taken = {token.i for entity in entities for token in entity}
            for sentence in part:
                for span in _to_spans(doc, sentence, next(predictions)):
                    if taken.isdisjoint(range(span.start, span.end)):
                        entities.append(span)
            doc.set_ents(entities)
            yield doc

    def score(self, examples: Iterable[Example], **_: Any) -> dict[str, Any]:
        """Return precision, recall and F1, for `nlp.evaluate`."""
        return get_ner_prf(examples)


def _to_spans(doc: Doc, sentence: Sentence, entities: SpanProbabilities) -> Iterator[Span]:
    for (label, start, end), probability in entities.items():
        first, last = sentence.indices[start], sentence.indices[end - 1]
        span = Span(doc, first, last + 1, label=label)
        span._.elmo_probability = probability
        yield span


class ElmoClassifier(TaskComponent):
    """Sets the probability of each label in `doc.cats`.

    The task gets the text of the document and tokenizes it as in training, so the probabilities are
    those of `elmore predict`. A document without words gets none.
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
