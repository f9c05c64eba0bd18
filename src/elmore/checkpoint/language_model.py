"""A folder to a language model: the biLM, its softmax and the words that it predicts."""

from pathlib import Path
from typing import Any, NamedTuple

from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.pretrained import read_pretrained
from elmore.errors import InputError
from elmore.text.vocabulary import Vocabulary


class SavedLanguageModel(NamedTuple):
    """A language model, the words that it predicts, and where they come from."""

    model: LanguageModel
    vocabulary: Vocabulary
    provenance: dict[str, Any]


def read_language_model(path: Path) -> SavedLanguageModel:
    """Load the language model of a folder, or of an archive of one."""
    bilm, vocabulary, provenance, softmax = read_pretrained(path, with_softmax=True)
    if softmax is None or vocabulary is None:
        raise InputError(
            f"{path} is no language model: it has no softmax. Expected a folder written by "
            "`elmore pretrain` or `elmore finetune`."
        )
    return SavedLanguageModel(LanguageModel(bilm, softmax).eval(), vocabulary, provenance)
