"""Oracle: `Embedder.embed` of the same sentences."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import elmore
from elmore.embedder import Embedder

TEXT = "The bank raised its rates.\n\nHe sat by the bank of the river.\n"


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A text in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    return "text.txt"


@pytest.fixture
def model(embedder: Embedder, text: str) -> str:
    """A model beside the text."""
    embedder.save("model")
    return "model"


@pytest.fixture
def never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded: what is wrong has to be known before."""

    def load(*_: object, **__: object) -> Embedder:
        raise AssertionError("loaded")

    monkeypatch.setattr("elmore.embedder.load", load)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "npz"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_has_the_vectors_of_embed(
    text: str, model: str, embedder: Embedder, suffix: str, kind: type
) -> None:
    result = elmore.embed_file(kind(text), kind(f"deep/er/v.{suffix}"), model=kind(model))
    assert result.file == Path(f"deep/er/v.{suffix}")
    assert (result.sentences, result.words) == (3, 15)
    assert result.seconds > 0
    rows = list(elmore.read_vectors(result.file))
    expected = embedder.embed(TEXT.splitlines())
    assert [row.tokens for row in rows] == [elmore.tokenize(line) for line in TEXT.splitlines()]
    for row, vectors in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-6)


def test_options_reach_the_model(text: str, model: str) -> None:
    elmo = elmore.load(model, tokenizer="whitespace", device="cpu")
    for layers in ("top", "average", 1):
        elmore.embed_file(
            text, "v.h5", model=model, tokenizer="whitespace", device="cpu", layers=layers,
            dtype="float16", carry_state=True, overwrite=True,
        )  # fmt: skip
        expected = elmo.embed(TEXT.splitlines(), layers=layers, carry_state=True)
        with h5py.File("v.h5") as file:
            for i, vectors in enumerate(expected):
                np.testing.assert_allclose(file[str(i)], vectors, atol=1e-3)
                assert file[str(i)].dtype == np.float16


@pytest.mark.usefixtures("never_loaded")
def test_an_embedder_is_taken_as_it_is(text: str, embedder: Embedder) -> None:
    elmore.embed_file(text, "v.arrow", model=embedder, layers="top")
    expected = embedder.embed(TEXT.splitlines(), layers="top")
    for row, vectors in zip(elmore.read_vectors("v.arrow"), expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-6)
    with pytest.raises(elmore.InputError, match="pass tokenizer, precision to load"):
        elmore.embed_file(text, "w.arrow", model=embedder, tokenizer="whitespace", precision="bf16")


def test_invalid_bytes_are_replaced_when_asked(text: str, embedder: Embedder) -> None:
    Path(text).write_bytes(b"a \xff\n")
    with pytest.raises(elmore.InputError, match="is not UTF-8") as refused:
        elmore.embed_file(text, "v.arrow", model=embedder)
    assert "--" not in str(refused.value)
    elmore.embed_file(text, "v.arrow", model=embedder, replace_invalid=True)
    assert [row.tokens for row in elmore.read_vectors("v.arrow")] == [["a", "\ufffd"]]


def test_progress_wraps_the_sentences(text: str, embedder: Embedder) -> None:
    seen: list[tuple[str, int]] = []

    def progress(items: Iterable[Any], description: str) -> Iterator[Any]:
        done = list(items)
        seen.append((description, len(done)))
        yield from done

    elmore.embed_file(text, "v.parquet", model=embedder, progress=progress)
    assert seen == [("sentences embedded", 3), ("batches converted to .parquet", 1)]


def test_a_resumed_run_is_the_whole_run(
    text: str, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.vectors.parts.BATCH_BYTES", 1)

    def strike(items: Iterable[Any], _: str) -> Iterator[Any]:
        for i, item in enumerate(items):
            if i == 2:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        elmore.embed_file(text, "v.npz", model=embedder, progress=strike)
    with pytest.raises(elmore.InputError, match="holds an interrupted run") as refused:
        elmore.embed_file(text, "v.npz", model=embedder)
    assert "--" not in str(refused.value)
    with pytest.raises(elmore.InputError, match="has layers = 'all', not 'top'"):
        elmore.embed_file(text, "v.npz", model=embedder, layers="top", resume=True)
    result = elmore.embed_file(text, "v.npz", model=embedder, resume=True)
    assert (result.sentences, result.words) == (3, 9)  # the words of the last sentence
    expected = embedder.embed(TEXT.splitlines())
    for row, vectors in zip(elmore.read_vectors("v.npz"), expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-6)


@pytest.mark.usefixtures("never_loaded")
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"output": "v.csv"}, "expected a name that ends in .parquet, .arrow"),
        ({"output": "text.txt"}, "expected a name that ends in"),
        ({"output": "there.h5"}, "there.h5 exists already"),
        ({"text": "."}, "is a directory; expected a text file"),
        ({"text": "empty.txt"}, "empty.txt is empty; expected one sentence per line"),
        ({"layers": "bottom"}, "layers must be all, top, average or a layer number"),
        ({"layers": -1}, "layers must be"),
        ({"layers": True}, "layers must be"),
        ({"dtype": "int8"}, "dtype must be float32 or float16, got 'int8'"),
        ({"tokenizer": "none"}, "unknown tokenizer 'none'"),
        ({"language": "English"}, "language must be an ISO 639 code"),
        ({"resume": True, "carry_state": True}, "carry_state rules out resume"),
    ],
)
def test_errors_come_before_the_model_is_loaded(
    text: str, request_: dict[str, Any], message: str
) -> None:
    Path("there.h5").write_text("precious")
    Path("empty.txt").touch()
    with pytest.raises(elmore.InputError, match=message) as refused:
        elmore.embed_file(**{"text": text, "output": "v.parquet", "model": "any", **request_})
    assert "--" not in str(refused.value)
    assert {path.name for path in Path().iterdir()} == {"text.txt", "there.h5", "empty.txt"}


@pytest.mark.usefixtures("never_loaded")
def test_a_text_that_is_missing(text: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        elmore.embed_file("missing.txt", "v.parquet")


def test_a_layer_that_the_model_lacks_leaves_nothing(text: str, embedder: Embedder) -> None:
    with pytest.raises(elmore.InputError, match="from 0 to 2"):
        elmore.embed_file(text, "v.parquet", model=embedder, layers=7)
    assert [path.name for path in Path().iterdir()] == ["text.txt"]
