"""A checkpoint directory to a language model: the biLM, its softmax and the vocabulary."""

from pathlib import Path
from typing import Any, NamedTuple

from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.pretrained import read_pretrained
from elmore.errors import InputError
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary


class SavedLanguageModel(NamedTuple):
    """A language model, its output vocabulary, and details from its config.json."""

    model: LanguageModel
    vocabulary: Vocabulary
    provenance: dict[str, Any]
    tokenization: Tokenization | None


class NoSoftmaxError(InputError):
    """A biLM was saved without its softmax, as in all released ELMo files."""


def read_language_model(
    path: Path | None, *, options: Path | None = None, vocab: Path | None = None
) -> SavedLanguageModel:
    """Load a language model; the arguments are those of `read_pretrained`.

    Raises:
        InputError: If there is no model.
        NoSoftmaxError: If the model has no softmax.
    """
    saved = read_pretrained(path, options=options, vocab=vocab, with_softmax=True)
    if saved.softmax is None or saved.vocabulary is None:
        raise NoSoftmaxError(
            f"{path} is not a language model, because it has no softmax; expected a directory "
            "written by `elmore pretrain` or `elmore finetune`"
        )
    model = LanguageModel(saved.bilm, saved.softmax).eval()
    return SavedLanguageModel(model, saved.vocabulary, saved.provenance, saved.tokenization)
