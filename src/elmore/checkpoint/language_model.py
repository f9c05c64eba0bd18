"""A folder to a language model: the biLM, its softmax and the words that it predicts."""

from pathlib import Path
from typing import Any, NamedTuple

from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.directory import (
    SOFTMAX,
    VOCABULARY,
    read_config,
    read_directory,
    read_softmax,
)
from elmore.errors import InputError
from elmore.text.vocabulary import Vocabulary


class SavedLanguageModel(NamedTuple):
    """A language model, the words that it predicts, and where they come from."""

    model: LanguageModel
    vocabulary: Vocabulary
    provenance: dict[str, Any]


def read_language_model(path: Path) -> SavedLanguageModel:
    """Load the language model of a folder."""
    if not (path / SOFTMAX).is_file() or not (path / VOCABULARY).is_file():
        raise InputError(
            f"{path} is no language model: {SOFTMAX} or {VOCABULARY} is not there. Expected a "
            "folder written by `elmore pretrain` or `elmore finetune`."
        )
    bilm = read_directory(path)
    vocabulary = Vocabulary.read(path / VOCABULARY)
    softmax = read_softmax(path, vocabulary, bilm.config.dim)
    provenance = read_config(path).get("provenance", {})
    return SavedLanguageModel(LanguageModel(bilm, softmax).eval(), vocabulary, provenance)
