"""flair's embeddings. Oracles: a stand-in of flair 0.15's interface; the vectors of `embed`.

flair itself needs transformers 4, which is not installed with transformers 5.
"""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import elmore
from elmore.checkpoint.directory import read_directory
from elmore.checkpoint.hdf5 import write_hdf5
from elmore.embedder import Embedder
from elmore.errors import InputError

EXAMPLE = Path(__file__).parents[1] / "examples" / "flair_embeddings.py"
WORDS = [["He", "sat", "by", "the", "bank"], ["Banks", "fail"]]


class Token:
    def __init__(self, text: str) -> None:
        self.text = text
        self._embeddings: dict[str, torch.Tensor] = {}

    def set_embedding(self, name: str, vector: torch.Tensor) -> None:
        self._embeddings[name] = vector

    def get_embedding(self) -> torch.Tensor:
        return torch.cat([self._embeddings[name] for name in sorted(self._embeddings)])


class Sentence:
    def __init__(self, words: list[str]) -> None:
        self.tokens = [Token(word) for word in words]

    def __iter__(self) -> Iterator[Token]:
        return iter(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)


class TokenEmbeddings(torch.nn.Module):
    """Calls `_add_embeddings_internal` as flair does, unless all tokens have the embedding."""

    def __init__(self) -> None:
        if not hasattr(self, "name"):
            self.name = "unnamed_embedding"
        super().__init__()

    def embed(self, sentences: Sentence | list[Sentence]) -> list[Sentence]:
        sentences = sentences if isinstance(sentences, list) else [sentences]
        if not all(self.name in token._embeddings for s in sentences for token in s.tokens):
            self._add_embeddings_internal(sentences)
        return sentences

    def save_embeddings(self) -> dict[str, Any]:
        return self.to_params() | {"__cls__": type(self).embeddings_name}


def register_embeddings(cls: type) -> type:
    cls.embeddings_name = cls.__name__
    return cls


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the example, imported with a stand-in of flair."""
    modules = {
        "flair": {"device": torch.device("cpu")},
        "flair.data": {"Sentence": Sentence},
        "flair.embeddings": {"TokenEmbeddings": TokenEmbeddings},
        "flair.embeddings.base": {"register_embeddings": register_embeddings},
    }
    for name, attributes in modules.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture
def model(embedder: Embedder, tmp_path: Path) -> str:
    embedder.save(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.mark.parametrize("mode", ["all", "top", "average"])
def test_tokens_get_the_vectors_of_embed(example: dict[str, Any], model: str, mode: str) -> None:
    embeddings = example["ElmoreEmbeddings"](model, embedding_mode=mode)
    sentences = [Sentence(words) for words in WORDS]
    embeddings.embed(sentences)
    expected = elmore.load(model, device="cpu").embed(WORDS, layers=mode)
    for sentence, vectors in zip(sentences, expected, strict=True):
        for k, token in enumerate(sentence):
            vector = np.concatenate(vectors[:, k]) if mode == "all" else vectors[k]
            assert np.array_equal(token.get_embedding(), vector)
            assert len(vector) == embeddings.embedding_length
    [again] = embeddings.embed(Sentence(WORDS[0]))  # a single sentence; no state is carried
    first = sentences[0].tokens[0].get_embedding()
    torch.testing.assert_close(again.tokens[0].get_embedding(), first, rtol=0, atol=1e-5)


def test_a_saved_tagger_has_the_arguments_of_its_embeddings(
    example: dict[str, Any], model: str, tmp_path: Path
) -> None:
    write_hdf5(read_directory(Path(model)), tmp_path / "w.hdf5", tmp_path / "options.json")
    original = example["ElmoreEmbeddings"](
        options_file=str(tmp_path / "options.json"), weight_file=str(tmp_path / "w.hdf5")
    )
    params = original.save_embeddings()
    assert params.pop("__cls__") == "ElmoreEmbeddings"
    assert not original.state_dict()  # the weights are not copied into the tagger
    copy = example["ElmoreEmbeddings"].from_params(params)
    assert copy.name == original.name
    [first], [second] = (e.embed(Sentence(WORDS[1])) for e in (original, copy))
    assert torch.equal(first.tokens[1].get_embedding(), second.tokens[1].get_embedding())


def test_invalid_modes_are_rejected(example: dict[str, Any], model: str) -> None:
    with pytest.raises(InputError, match="embedding_mode must be all, top or average, got 'sum'"):
        example["ElmoreEmbeddings"](model, embedding_mode="sum")


def test_example_prints_a_similarity(
    example: dict[str, Any], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example["main"](model)
    vectors = elmore.load(model, device="cpu").embed(example["SENTENCES"], layers="top")
    a, b = vectors[0][4].astype(float), vectors[1][1].astype(float)
    cosine = a @ b / np.sqrt((a @ a) * (b @ b))
    assert capsys.readouterr().out == f"{len(a)} dimensions, cosine of 'bank': {cosine:.3f}\n"
