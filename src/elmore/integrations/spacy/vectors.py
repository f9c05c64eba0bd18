"""The component `elmore`: contextual vectors of tokens, spans and documents.

J layers, W words of a sentence, N tokens of a document, D width of a vector.
"""

from collections.abc import Iterator
from typing import Literal
from weakref import ref

import numpy as np
import torch
from spacy.language import Language
from spacy.tokens import Doc

from elmore.embedder import Precision, load
from elmore.errors import InputError
from elmore.inference.layers import check_layer, select_layers
from elmore.integrations.spacy.component import Component, split_sentences
from elmore.integrations.spacy.hooks import set_hooks

if not Doc.has_extension("elmo_layers"):
    Doc.set_extension("elmo_layers", default=None)


class ElmoVectors(Component):
    """Sets `doc.tensor`, and the vectors and similarities of tokens, spans and documents.

    Args:
        name: Name of the component.
        nlp: The pipeline, to check the order of its components.
        model: See `elmore.load`.
        layers: `average` of the layers, `top` or the index of a layer.
        all_layers: Also store all layers, (J, N, D), in `doc._.elmo_layers`.
        device: See `elmore.load`.
        precision: See `elmore.load`.
    """

    def __init__(
        self,
        name: str,
        nlp: Language | None = None,
        *,
        model: str | None = None,
        layers: Literal["top", "average"] | int = "average",
        all_layers: bool = False,
        device: str = "auto",
        precision: Precision = "fp32",
    ) -> None:
        self.elmo = load(model, device=device, precision=precision)
        check_layer(layers, self.elmo.num_layers, "layers")
        self.layers = layers
        self.all_layers = all_layers
        self._nlp = ref(nlp) if nlp else None
        settings = {
            "model": model,
            "layers": layers,
            "all_layers": all_layers,
            "device": device,
            "precision": precision,
        }
        super().__init__(name, settings, self.elmo.weights_hash)

    def annotate(self, docs: list[Doc]) -> Iterator[Doc]:
        """Set the vectors of a batch of documents. Those of whitespace tokens are zeros.

        Raises:
            InputError: If other components use `doc.tensor`, too, after this one.
        """
        self._check_order()
        sentences = [split_sentences(doc) for doc in docs]
        words = (sentence.words for part in sentences for sentence in part)
        stream = self.elmo.stream(words, layers="all" if self.all_layers else self.layers)
        leading = [self.elmo.num_layers] if self.all_layers else []
        for doc, part in zip(docs, sentences, strict=True):
            vectors = np.zeros((*leading, len(doc), self.elmo.dim), np.float32)
            for sentence in part:
                vectors[..., sentence.indices, :] = next(stream).vectors
            if self.all_layers:
                doc._.elmo_layers = vectors
                vectors = select_layers(torch.from_numpy(vectors), self.layers).numpy()
            doc.tensor = vectors
            yield set_hooks(doc)

    def _check_order(self) -> None:
        nlp = self._nlp() if self._nlp else None
        components = [component for _, component in nlp.pipeline] if nlp else []
        if nlp is None or self not in components:  # spaCy can add it to another pipeline
            return
        later = nlp.pipe_names[components.index(self) + 1 :]
        for name, component in nlp.pipeline:
            if name in later and "doc.tensor" in nlp.get_pipe_meta(name).assigns:
                raise InputError(
                    f"{name} overwrites doc.tensor; add {self.name} to the pipeline after it"
                )
            listeners = getattr(component, "listening_components", [])  # of tok2vec
            if readers := [listener for listener in listeners if listener in later]:
                raise InputError(
                    f"{self.name} overwrites doc.tensor, which {' and '.join(readers)} read from "
                    f"{name}; add {self.name} to the pipeline after them"
                )
