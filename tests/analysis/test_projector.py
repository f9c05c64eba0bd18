"""Files for the Embedding Projector. Oracles: `Embedder.embed`; TensorBoard's configuration."""

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from elmore.analysis.projector import export_projector
from elmore.embedder import Embedder
from elmore.errors import InputError

TEXT = "The play was long .\n\nThey play a play\nno more\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def read_cells(path: Path) -> list[list[str]]:
    """Split a file as the projector does, which knows neither quotes nor escapes."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]


@pytest.mark.parametrize("layer", ["top", "average", 0])
def test_each_vector_has_its_word_and_sentence(
    embedder: Embedder, text: Path, tmp_path: Path, layer
) -> None:
    files = export_projector(text, tmp_path / "out", model=embedder, layer=layer)
    header, *rows = read_cells(files.folder / "metadata.tsv")
    assert header == ["word", "sentence"]
    assert files.words == len(rows) == 11
    assert rows[1] == ["play", "The [play] was long ."]
    assert rows[8] == ["play", "They play a [play]"]
    vectors = np.array(read_cells(files.folder / "vectors.tsv"), dtype=np.float64)
    expected = np.concatenate(embedder.embed(TEXT.splitlines(), layers=layer))
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)


def test_words_can_be_selected(embedder: Embedder, text: Path, tmp_path: Path) -> None:
    files = export_projector(
        text, tmp_path / "out", model=embedder, words=["play", "more"], max_words=3
    )
    assert read_cells(files.folder / "metadata.tsv")[1:] == [
        ["play", "The [play] was long ."],
        ["play", "They [play] a play"],
        ["play", "They play a [play]"],
    ]
    vectors = np.array(read_cells(files.folder / "vectors.tsv"), dtype=np.float64)
    first, _, third, _ = embedder.embed(TEXT.splitlines(), layers="top")
    expected = [first[1], third[1], third[3]]
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)


def test_tensorboard_finds_the_files(embedder: Embedder, text: Path, tmp_path: Path) -> None:
    folder = export_projector(text, tmp_path / "out", model=embedder).folder
    config = (folder / "projector_config.pbtxt").read_text()
    [tensor] = text_format.Parse(config, ProjectorConfig()).embeddings
    assert (tensor.tensor_path, tensor.metadata_path) == ("vectors.tsv", "metadata.tsv")


def test_no_word_breaks_a_row(embedder: Embedder, tmp_path: Path) -> None:
    words = ["a\u2028b", 'say"s', "\u00a0x", "'\\t", "\x1ctab"]
    (tmp_path / "text.txt").write_text("\n".join(words), encoding="utf-8")
    files = export_projector(tmp_path / "text.txt", tmp_path / "out", model=embedder)
    cells = read_cells(files.folder / "metadata.tsv")
    assert len(cells) == files.words + 1
    assert {len(row) for row in cells} == {2}


def test_invalid_input_is_rejected_and_nothing_is_written(
    embedder: Embedder, text: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with pytest.raises(InputError, match=r"text\.txt has no word zebra"):
        export_projector(text, output, model=embedder, words=["zebra"])
    with pytest.raises(InputError, match="layer must be top, average or a number"):
        export_projector(text, output, model=embedder, layer="all")
    with pytest.raises(InputError, match="max_words must be at least 1"):
        export_projector(text, output, model=embedder, max_words=0)
    with pytest.raises(InputError, match="an Embedder is loaded already"):
        export_projector(text, output, model=embedder, precision="int8")
    with pytest.raises(InputError, match="would replace the input"):
        export_projector(text, tmp_path, model=embedder)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_only_own_folders_are_replaced(embedder: Embedder, text: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    export_projector(text, output, model=embedder)
    with pytest.raises(InputError, match="exists already"):
        export_projector(text, output, model=embedder)
    files = export_projector(text, output, model=embedder, words=["more"], overwrite=True)
    assert files.words == 1
    (output / "notes.txt").write_text("precious")
    with pytest.raises(InputError, match=r"contains notes\.txt"):
        export_projector(text, output, model=embedder, overwrite=True)
