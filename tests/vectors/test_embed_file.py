"""Oracle: `Embedder.embed` of the same sentences."""

import gzip
import io
import random
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import elmore
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder, Precision
from elmore.inference import batches, word_cache
from elmore.inference.packed import int8_supported
from elmore.vectors import parts

TEXT = "The bank raised its rates.\n\nHe sat by the bank of the river.\n"


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A text file in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    return "text.txt"


@pytest.fixture
def model(embedder: Embedder, text: str) -> str:
    """A model next to the text file."""
    embedder.save("model")
    return "model"


@pytest.fixture
def no_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `load` fail: the test must not load a model."""

    def load(*_: object, **__: object) -> Embedder:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("elmore.embedder.load", load)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "h5", "npz"])
@pytest.mark.parametrize("path_type", [str, Path])
def test_file_has_the_vectors_of_embed(
    text: str, model: str, embedder: Embedder, suffix: str, path_type: type
) -> None:
    result = elmore.embed_file(
        path_type(text), path_type(f"deep/er/v.{suffix}"), model=path_type(model)
    )
    assert result.file == Path(f"deep/er/v.{suffix}")
    assert (result.sentences, result.words) == (3, 15)
    assert result.seconds > 0
    rows = list(elmore.read_vectors(result.file))
    expected = embedder.embed(TEXT.splitlines())
    assert [row.tokens for row in rows] == [elmore.tokenize(line) for line in TEXT.splitlines()]
    for row, vectors in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-6)


def test_npz_without_its_last_rows_is_rejected(text: str, embedder: Embedder) -> None:
    elmore.embed_file(text, "v.npz", model=embedder)
    with zipfile.ZipFile("v.npz") as intact, zipfile.ZipFile("cut.npz", "w") as cut:
        cut.comment = intact.comment
        for name in intact.namelist()[:-2]:
            cut.writestr(name, intact.read(name))
    with pytest.raises(elmore.InputError, match="it has 2 of 3 sentences"):
        list(elmore.read_vectors("cut.npz"))


def test_options_are_passed_to_the_model(text: str, model: str) -> None:
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


@pytest.mark.usefixtures("no_loading")
def test_embedder_is_accepted_as_the_model(text: str, embedder: Embedder) -> None:
    elmore.embed_file(text, "v.arrow", model=embedder, layers="top")
    expected = embedder.embed(TEXT.splitlines(), layers="top")
    for row, vectors in zip(elmore.read_vectors("v.arrow"), expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-6)
    with pytest.raises(elmore.InputError, match="pass tokenizer, precision to load"):
        elmore.embed_file(text, "w.arrow", model=embedder, tokenizer="whitespace", precision="bf16")


def test_invalid_bytes_are_replaced_only_with_the_option(text: str, embedder: Embedder) -> None:
    Path(text).write_bytes(b"a \xff\n")
    with pytest.raises(elmore.InputError, match="is not UTF-8") as error:
        elmore.embed_file(text, "v.arrow", model=embedder)
    assert "--" not in str(error.value)
    elmore.embed_file(text, "v.arrow", model=embedder, replace_invalid=True)
    assert [row.tokens for row in elmore.read_vectors("v.arrow")] == [["a", "\ufffd"]]


def test_progress_wraps_sentences_and_conversion(text: str, embedder: Embedder) -> None:
    seen: list[tuple[str, int]] = []

    def progress(items: Iterable[Any], description: str) -> Iterator[Any]:
        items = list(items)
        seen.append((description, len(items)))
        yield from items

    elmore.embed_file(text, "v.parquet", model=embedder, progress=progress)
    assert seen == [("sentences embedded", 3), ("batches converted to .parquet", 1)]


def interrupt(items: Iterable[Any], _: str) -> Iterator[Any]:
    """Raise after two sentences."""
    yield from islice(items, 2)
    raise KeyboardInterrupt


@pytest.fixture
def interrupted(text: str, model: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An output with two of three sentences saved."""
    monkeypatch.setattr("elmore.vectors.parts.BATCH_BYTES", 1)
    with pytest.raises(KeyboardInterrupt):
        elmore.embed_file(text, "v.npz", model=model, progress=interrupt)
    return "v.npz"


def test_resumed_run_equals_an_uninterrupted_one(
    text: str, model: str, interrupted: str, embedder: Embedder
) -> None:
    with pytest.raises(elmore.InputError, match="holds an interrupted run") as error:
        elmore.embed_file(text, interrupted, model=model)
    assert "--" not in str(error.value)
    moved = Path(model).rename("moved")  # the content counts, not the path
    Path(text).rename("moved.txt")
    result = elmore.embed_file("moved.txt", interrupted, model=moved, resume=True)
    assert (result.sentences, result.words) == (3, 9)  # only the last sentence is counted
    expected = embedder.embed(TEXT.splitlines())
    for row, vectors in zip(elmore.read_vectors(interrupted), expected, strict=True):
        np.testing.assert_allclose(row.vectors, vectors, atol=1e-6)


@pytest.fixture(scope="module")
def packed_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose products are large enough for the packed CPU engine."""
    torch.manual_seed(0)
    config = BiLMConfig(char_dim=4, filters=((1, 8), (3, 24)), dim=64, cell_dim=1024)
    path = tmp_path_factory.mktemp("packed") / "model"
    Embedder(BiLM(config), device="cpu").save(path)
    return path


@pytest.mark.parametrize(
    ("suffix", "precision"),
    [
        ("parquet", "fp32"), ("arrow", "fp32"), ("h5", "fp32"), ("npz", "fp32"),
        ("arrow", "bf16"), ("arrow", "int8"),
    ],
)  # fmt: skip
def test_killed_and_resumed_run_has_the_same_bits(
    tmp_path: Path,
    packed_model: Path,
    suffix: str,
    precision: Precision,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches, windows and the word cache are small, so that kills hit all of their boundaries."""
    if precision == "int8" and not int8_supported():
        pytest.skip("needs FBGEMM")
    monkeypatch.setitem(elmore.embedder._BATCH_WORDS, "cpu", 50)
    monkeypatch.setattr(batches, "WINDOW_WORDS", 200, raising=False)
    monkeypatch.setattr(word_cache, "_MAX_ROWS", 60)
    monkeypatch.setattr(parts, "BATCH_BYTES", 1)
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefg", k=rng.randrange(1, 12))) for _ in range(150)]
    lines = [" ".join(rng.choices(words, k=rng.randrange(25))) for _ in range(60)]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines))
    options = {"device": "cpu", "tokenizer": "whitespace", "precision": precision}
    elmo = elmore.load(packed_model, **options)
    expected = tmp_path / f"uninterrupted.{suffix}"
    elmore.embed_file(text, expected, model=elmo)
    actual = tmp_path / f"resumed.{suffix}"
    saved = 0
    for count in (1, 2, 15, 20, 4):

        def kill(items: Iterable[Any], _: str, count: int = count) -> Iterator[Any]:
            yield from islice(items, count)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            elmore.embed_file(text, actual, model=elmo, resume=True, progress=kill)
        saved += count
    result = elmore.embed_file(text, actual, model=packed_model, resume=True, **options)
    assert result.words == sum(len(line.split()) for line in lines[saved:])
    rows = zip(elmore.read_vectors(actual), elmore.read_vectors(expected), strict=True)
    for row, uninterrupted in rows:
        assert row.tokens == uninterrupted.tokens
        assert row.vectors.tobytes() == uninterrupted.vectors.tobytes(), row.id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": "top"}, "has layers = 'all', not 'top'"),
        ({"dtype": "float16"}, "has dtype = 'float32', not 'float16'"),
        ({"tokenizer": "whitespace"}, "has tokenizer = 'moses', not 'whitespace'"),
        ({"language": "de"}, "has language = 'en', not 'de'"),
        ({"precision": "bf16"}, "has precision = 'fp32', not 'bf16'"),
        ({"replace_invalid": True}, "has replace_invalid = False, not True"),
    ],
)
def test_run_with_other_settings_is_not_resumed(
    text: str, model: str, interrupted: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(elmore.InputError, match=message):
        elmore.embed_file(text, interrupted, model=model, resume=True, **arguments)


def test_run_with_other_weights_or_another_version_is_not_resumed(
    text: str, model: str, interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other model has the same path and the same sizes."""
    same = elmore.load(model).bilm
    clipped = BiLM(replace(same.config, cell_clip=1.0))
    clipped.load_state_dict(same.state_dict())
    with pytest.raises(elmore.InputError, match="has config_hash = '"):
        elmore.embed_file(text, interrupted, model=Embedder(clipped), resume=True)
    other = Embedder(elmore.BiLM(elmore.BiLMConfig.tiny()))
    other.save(model, overwrite=True)
    with pytest.raises(elmore.InputError, match="has weights_hash = '"):
        elmore.embed_file(text, interrupted, model=model, resume=True)
    with pytest.raises(elmore.InputError, match="has weights_hash = '"):
        elmore.embed_file(text, interrupted, model=other, resume=True)
    monkeypatch.setattr("elmore.__version__", "9.9")
    with pytest.raises(elmore.InputError, match=r"has elmore_version = '.*', not '9.9'"):
        elmore.embed_file(text, interrupted, model=model, resume=True)


@pytest.mark.parametrize(
    "other", [TEXT.replace("rates", "taxes"), TEXT.replace("\n\n", "\n"), "The bank.\n", TEXT[:9]]
)
def test_run_of_another_text_is_not_resumed(
    text: str, model: str, interrupted: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "the first 2 lines of .* are not those that were embedded before"
    Path(text).write_text(other)
    with pytest.raises(elmore.InputError, match=message):
        elmore.embed_file(text, interrupted, model=model, resume=True)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(other.encode())))
    with pytest.raises(elmore.InputError, match=message):
        elmore.embed_file("-", interrupted, model=model, resume=True)
    Path(text).write_text(TEXT)
    assert elmore.embed_file(text, interrupted, model=model, resume=True).sentences == 3


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "h5", "npz"])
def test_complete_output_is_resumed_without_work(text: str, model: str, suffix: str) -> None:
    output = Path(f"v.{suffix}")
    elmore.embed_file(text, output, model=model)
    before = output.read_bytes()
    result = elmore.embed_file(text, output, model=model, resume=True)
    assert (result.sentences, result.words) == (3, 0)
    with pytest.raises(elmore.InputError, match="has layers = 'all', not 'top'"):
        elmore.embed_file(text, output, model=model, layers="top", resume=True)
    Path(text).write_text(TEXT + "One more.\n")
    with pytest.raises(elmore.InputError, match="complete with 3 sentences, but the text has more"):
        elmore.embed_file(text, output, model=model, resume=True)
    Path(text).write_text(TEXT.replace("rates", "taxes"))
    with pytest.raises(elmore.InputError, match=r"the first 3 lines of .* embedded before"):
        elmore.embed_file(text, output, model=model, resume=True)
    assert output.read_bytes() == before


def test_inputs_are_not_overwritten(text: str, model: str, embedder: Embedder) -> None:
    Path("weights.h5").write_text("precious")
    with pytest.raises(elmore.InputError, match=r"weights.h5 would replace the input weights.h5"):
        elmore.embed_file(text, "weights.h5", model="weights.h5", overwrite=True)
    Path("text.npz").write_text(TEXT)
    for loaded in (model, embedder):
        with pytest.raises(elmore.InputError, match="would replace the input"):
            elmore.embed_file("text.npz", "text.npz", model=loaded, overwrite=True)
    assert Path("weights.h5").read_text() == "precious"
    assert Path("text.npz").read_text() == TEXT


@pytest.mark.usefixtures("no_loading")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "v.csv"}, "expected a name that ends in .parquet, .arrow"),
        ({"output": "text.txt"}, "would replace the input text.txt"),
        ({"output": "existing.h5"}, "existing.h5 exists already"),
        ({"output": "folder.h5", "overwrite": True}, "folder.h5 is a directory; expected the name"),
        ({"text": "."}, "is a directory; expected a text file"),
        ({"text": "empty.txt"}, "empty.txt is empty; expected one sentence per line"),
        ({"resume": True, "carry_state": True}, "carry_state rules out resume"),
    ],
)
def test_invalid_arguments_are_rejected_before_the_model_is_loaded(
    text: str, arguments: dict[str, Any], message: str
) -> None:
    Path("existing.h5").write_text("precious")
    Path("empty.txt").touch()
    Path("folder.h5").mkdir()
    with pytest.raises(elmore.InputError, match=message) as error:
        elmore.embed_file(**{"text": text, "output": "v.parquet", "model": "any", **arguments})
    assert "--" not in str(error.value)
    assert {path.name for path in Path().iterdir()} == {
        "text.txt", "existing.h5", "empty.txt", "folder.h5",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["p.fasta", "p.FA", "p.faa.gz"])
def test_fasta_files_embedded_as_text_are_reported(model: str, name: str) -> None:
    content = b">p1\nMKV\n"
    Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.warns(UserWarning, match=f"{name} is embedded as text.*--format fasta"):
        elmore.embed_file(name, "v.npz", model=model, device="cpu")


@pytest.mark.parametrize(("text", "name"), [("-", "standard input"), ("e.gz", "e.gz")])
def test_empty_standard_input_and_archives_are_rejected(
    tmp_path: Path, embedder: Embedder, text: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.gz").write_bytes(gzip.compress(b""))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(elmore.InputError, match=f"^{name} is empty; expected one sentence per"):
        elmore.embed_file(text, "v.h5", model=embedder)
    assert [path.name for path in Path().iterdir()] == ["e.gz"]


@pytest.mark.usefixtures("no_loading")
def test_error_for_sentences_says_how_to_embed_them(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"path of a text file, got list\. .*embed\(sentences\)"):
        elmore.embed_file(["A bank."], tmp_path / "x.npz")


def test_missing_text_file_is_rejected_before_the_model_is_loaded(text: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        elmore.embed_file("missing.txt", "v.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": 7}, "from 0 to 2"),
        ({"layers": -1}, "layers must be"),
        ({"layers": True}, "layers must be"),
        ({"layers": "bottom"}, "layers must be all, top, average, sum or a number"),
        ({"dtype": "int8"}, "dtype must be float32 or float16, got 'int8'"),
        ({"tokenizer": "none"}, "unknown tokenizer 'none'"),
        ({"language": "English"}, "unknown language"),
    ],
)
def test_invalid_arguments_leave_no_files(
    text: str, model: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(elmore.InputError, match=message):
        elmore.embed_file(text, "v.parquet", model=model, **arguments)
    assert {path.name for path in Path().iterdir()} == {"text.txt", "model"}
