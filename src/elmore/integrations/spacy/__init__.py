"""spaCy: contextual vectors, and trained tasks, as components of a pipeline.

    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmore", config={"model": "en"})
    nlp.add_pipe("elmore_ner", config={"model": "runs/ner"})
    nlp.add_pipe("elmore_classifier", config={"model": "runs/topics"})

spaCy finds the components by their entry points, and imports this module for every pipeline, also
for those without elmore. So what is slow to import is imported in the functions.
"""

from typing import TYPE_CHECKING, Literal

from elmore.errors import require

require("spacy", extra="spacy")

from spacy.language import Language  # noqa: E402

from elmore.integrations.spacy.hooks import set_hooks  # noqa: E402

if TYPE_CHECKING:
    from elmore.integrations.spacy.tasks import ElmoClassifier, ElmoNer
    from elmore.integrations.spacy.vectors import ElmoVectors

__all__ = ["new_classifier", "new_ner", "new_vectors", "set_hooks"]

# As in elmore.embedder, which is slow to import; spaCy checks the settings against them.
_Layers = Literal["top", "average"] | int
_Precision = Literal["fp32", "bf16", "int8"]
_TASK_SETTINGS = {"bilm": None, "device": "auto", "precision": None}


@Language.factory(
    "elmore",
    assigns=["doc.tensor"],
    default_config={
        "model": None,
        "layers": "average",
        "all_layers": False,
        "device": "auto",
        "precision": "fp32",
    },
)
def new_vectors(
    nlp: Language,
    name: str,
    model: str | None,
    layers: _Layers,
    all_layers: bool,
    device: str,
    precision: _Precision,
) -> "ElmoVectors":
    """Return a component that sets the vectors of tokens, spans and documents.

    Args:
        nlp: The pipeline.
        name: Name of the component.
        model: See `elmore.load`.
        layers: `average` of the layers, `top` or the index of a layer.
        all_layers: Also store all layers, in `doc._.elmo_layers`.
        device: See `elmore.load`.
        precision: See `elmore.load`.
    """
    from elmore.integrations.spacy.vectors import ElmoVectors

    return ElmoVectors(
        name,
        nlp,
        model=model,
        layers=layers,
        all_layers=all_layers,
        device=device,
        precision=precision,
    )


@Language.factory(
    "elmore_ner",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config=_TASK_SETTINGS,
    default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
)
def new_ner(
    nlp: Language,  # noqa: ARG001
    name: str,
    model: str,
    bilm: str | None,
    device: str,
    precision: _Precision | None,
) -> "ElmoNer":
    """Return a component that sets `doc.ents`.

    Args:
        nlp: The pipeline.
        name: Name of the component.
        model: Folder of a trained NER task, as for `elmore.tasks.load`.
        bilm: See `elmore.tasks.load`.
        device: See `elmore.tasks.load`.
        precision: See `elmore.tasks.load`.
    """
    from elmore.integrations.spacy.tasks import ElmoNer

    return ElmoNer(name, model=model, bilm=bilm, device=device, precision=precision)


@Language.factory(
    "elmore_classifier",
    assigns=["doc.cats"],
    default_config=_TASK_SETTINGS,
    default_score_weights={"cats_score": 1.0},
)
def new_classifier(
    nlp: Language,  # noqa: ARG001
    name: str,
    model: str,
    bilm: str | None,
    device: str,
    precision: _Precision | None,
) -> "ElmoClassifier":
    """Return a component that sets `doc.cats`.

    Args:
        nlp: The pipeline.
        name: Name of the component.
        model: Folder of a trained classify or sentiment task, as for `elmore.tasks.load`.
        bilm: See `elmore.tasks.load`.
        device: See `elmore.tasks.load`.
        precision: See `elmore.tasks.load`.
    """
    from elmore.integrations.spacy.tasks import ElmoClassifier

    return ElmoClassifier(name, model=model, bilm=bilm, device=device, precision=precision)
