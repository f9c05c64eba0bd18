"""sentence-transformers. Oracle: `Embedder.sentence_vectors` on the same directory."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import elmore
import elmore.integrations.huggingface

TEXTS = ["He sat by the bank.", "", "Banks fail", "The bank of the river " * 30]


def test_encode_equals_the_mean_over_words(folder: Path) -> None:
    model, elmo = SentenceTransformer(str(folder), device="cpu"), elmore.load(folder, device="cpu")
    assert model.get_embedding_dimension() == elmo.dim
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling"]
    vectors = model.encode(TEXTS, batch_size=2)
    np.testing.assert_allclose(vectors, elmo.sentence_vectors(TEXTS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", ["top", 1])
def test_layers_can_be_chosen(folder: Path, layers: str | int) -> None:
    model = SentenceTransformer(str(folder), device="cpu", config_kwargs={"layers": layers})
    expected = elmore.load(folder, device="cpu").sentence_vectors(TEXTS, layers=layers)
    np.testing.assert_allclose(model.encode(TEXTS), expected, rtol=0, atol=1e-6)


def test_saved_model_is_read_by_both_libraries(folder: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), rtol=0, atol=1e-6)
    expected = elmore.load(folder, device="cpu").weights_hash
    assert elmore.load(tmp_path / "saved", device="cpu").weights_hash == expected
