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


def read_language_model(path: Path) -> SavedLanguageModel:
    """Load a language model from a checkpoint directory or an archive of one.

    Raises:
        InputError: If there is no model, or the model has no softmax.
    """
    saved = read_pretrained(path, with_softmax=True)
    if saved.softmax is None or saved.vocabulary is None:
        raise InputError(
            f"{path} is not a language model, because it has no softmax; expected a directory "
            "written by `elmore pretrain` or `elmore finetune`"
        )
    model = LanguageModel(saved.bilm, saved.softmax).eval()
    return SavedLanguageModel(model, saved.vocabulary, saved.provenance, saved.tokenization)
