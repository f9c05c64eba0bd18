"""Perplexity of a file. Oracle: a uniform softmax, whose perplexity is the number of words."""

import lzma
from pathlib import Path

import pytest

from elmore.analysis.heldout_text import measure_text
from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.language_model import SavedLanguageModel
from elmore.embedder import Embedder
from tests.analysis.toy import VOCABULARY, uniform_softmax


def test_text_is_split_tokenized_and_scored(embedder: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "text.txt.xz"
    path.write_bytes(lzma.compress(b"The bank failed. The river rose!\n\nThe end.\n"))
    model = LanguageModel(embedder.bilm, uniform_softmax(embedder.config.dim))
    result = measure_text(SavedLanguageModel(model, VOCABULARY, {}, None), embedder, path)
    assert list(result.scores) == ["perplexity"]
    for direction in ("forward", "backward", "average"):
        assert result.scores["perplexity"][direction] == pytest.approx(len(VOCABULARY))
    # Three sentences: 11 words and 3 boundary tokens; only The (3 times) and bank are known.
    assert result.details == {
        "tokens": 14,
        "words outside the vocabulary, scored as `<UNK>`": "63.64%",
    }
