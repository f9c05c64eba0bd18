"""What the components share: sentences, batches, and models that are saved by reference."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, NamedTuple

import torch
from spacy.tokens import Doc
from spacy.util import minibatch

from elmore.atomic import atomic_file
from elmore.errors import InputError
from elmore.schema import read_json

FILE = "model.json"


class Component(ABC):
    """A component with a frozen model.

    A saved pipeline contains the name or path of the model, in the settings of the component, and a
    hash of the weights, but not the weights.

    Args:
        name: Name of the component.
        settings: Its other arguments, to create it again in another process.
        weights_hash: Identifies the weights of the model.
    """

    def __init__(self, name: str, settings: dict[str, Any], weights_hash: str) -> None:
        self.name = name
        self.weights_hash = weights_hash
        self._settings = settings

    @abstractmethod
    def annotate(self, docs: list[Doc]) -> Iterator[Doc]:
        """Annotate a batch of documents, and yield them in their order."""

    def __call__(self, doc: Doc) -> Doc:
        """Annotate a document."""
        [doc] = self.annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 1000) -> Iterator[Doc]:
        """Annotate documents in batches."""
        for docs in minibatch(stream, size=batch_size):
            yield from self.annotate(docs)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:  # noqa: ARG002
        """Return the hash of the weights."""
        return json.dumps({"weights_hash": self.weights_hash}).encode()

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "Component":  # noqa: ARG002
        """Check that the model is the one that the pipeline was saved with."""
        return self._check(json.loads(data))

    def to_disk(self, path: Path | str, *, exclude: Iterable[str] = ()) -> None:
        """Write the hash of the weights to a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(folder / FILE) as temporary:
            temporary.write_bytes(self.to_bytes(exclude=exclude))

    def from_disk(self, path: Path | str, *, exclude: Iterable[str] = ()) -> "Component":  # noqa: ARG002
        """Check that the model is the one that the pipeline was saved with."""
        return self._check(read_json(Path(path) / FILE, "the hash of a model"))

    def _check(self, saved: dict[str, Any]) -> "Component":
        if (expected := saved.get("weights_hash")) != self.weights_hash:
            raise InputError(
                f"the component {self.name} was saved with another model: the hash of its weights "
                f"was {expected}, that of {self._settings['model'] or 'the default model'} is "
                f"{self.weights_hash}. Pass the path of the right one, for example spacy.load("
                f'pipeline, config={{"components.{self.name}.model": path}})'
            )
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the reference: spaCy sends components to processes that it spawns."""
        return _restore, (type(self), self.name, self._settings, self.weights_hash)


def _restore(
    kind: type[Component], name: str, settings: dict[str, Any], weights_hash: str
) -> Component:
    if parent_process():  # one of several workers, which use one thread each, as after a fork
        torch.set_num_threads(1)
    component = kind(name, **settings)
    return component._check({"weights_hash": weights_hash})


class Sentence(NamedTuple):
    """The words of a sentence, without whitespace tokens, and their indices in the document."""

    words: list[str]
    indices: list[int]


def split_sentences(doc: Doc) -> list[Sentence]:
    """Return the sentences of a document; without sentence boundaries, all of it is one.

    Sentences without words are left out.
    """
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc]
    words = ([token for token in span if not token.is_space] for span in spans)
    return [Sentence([t.text for t in tokens], [t.i for t in tokens]) for tokens in words if tokens]
