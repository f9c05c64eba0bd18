"""The component `elmore_ner`: a trained NER task that sets `doc.ents`."""

from collections.abc import Iterable, Iterator
from typing import Any

from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example

from elmore.integrations.spacy.component import Sentence, split_sentences
from elmore.integrations.spacy.task import TaskComponent
from elmore.tasks.ner.data import NerExample
from elmore.tasks.ner.task import Ner
from elmore.tasks.spans import SpanProbabilities

if not Span.has_extension("elmo_probability"):
    Span.set_extension("elmo_probability", default=None)


class ElmoNer(TaskComponent):
    """Adds entities to `doc.ents`; those of earlier components stay.

    The task gets the tokens of spaCy, sentence by sentence, so entities are aligned with them.
    `ent._.elmo_probability` has the probability of an entity.

    Args:
        name: Name of the component.
        model: Folder of a trained NER task.
        bilm: See `elmore.tasks.load`.
        device: See `elmore.tasks.load`.
        precision: See `elmore.tasks.load`.
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
