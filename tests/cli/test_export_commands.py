"""`elmore export`, end to end. Oracle: the Python API."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import elmore
from elmore.checkpoint.directory import write_directory
from tests.cli.conftest import assert_rejected


@pytest.fixture(autouse=True)
def folder(bilm: elmore.BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model and a text file."""
    write_directory(bilm, tmp_path / "model")
    (tmp_path / "text.txt").write_text("She wrote a play .\nThe play was long .\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_onnx_file_gives_the_vectors_of_the_embedder(run) -> None:
    assert run("export", "onnx", "model", "-o", "elmo.onnx").out == "elmo.onnx (0.1 MB)\n"
    elmo = elmore.load("model", device="cpu")
    sentences = [["a", "play"], ["The", "play", "was", "long"]]
    session = onnxruntime.InferenceSession("elmo.onnx")
    layers, mask = session.run(None, {"ids": elmore.encode_sentences(sentences).ids.numpy()})
    for row, is_word, expected in zip(layers, mask, elmo.embed(sentences), strict=True):
        np.testing.assert_allclose(row[:, is_word], expected, rtol=0, atol=1e-6)
    result = run("export", "onnx", "model", "-o", "b.onnx", "--language", "de", "--json")
    facts = json.loads(result.out)
    assert facts["file"] == "b.onnx"
    assert facts["bytes"] == Path("b.onnx").stat().st_size
    assert facts["metadata"]["language"] == "de"
    assert facts["metadata"]["weights_hash"] == elmo.weights_hash


def test_onnx_rejects_invalid_input(run, folder: Path) -> None:
    export = ("export", "onnx")
    Path("elmo.onnx").write_text("precious")
    assert_rejected(run(*export, "model", "-o", "elmo.onnx"), "elmo.onnx exists already")
    assert_rejected(
        run(*export, "model", "-o", "elmo.onnx", "--overwrite"), "elmore did not write elmo.onnx"
    )
    assert Path("elmo.onnx").read_text() == "precious"
    assert_rejected(run(*export, "model", "-o", "elmo"), "expected a name that ends in .onnx")
    assert_rejected(run(*export, "nothing", "-o", "x.onnx"), "nothing: no such model")
    assert_rejected(run(*export, "model", "-o", "text.txt/x.onnx"), "its parent is a file")
    assert {path.name for path in folder.iterdir()} == {"model", "text.txt", "elmo.onnx"}


def test_projector_writes_a_folder(run) -> None:
    args = ("export", "projector", "text.txt", "-m", "model", "-o", "out", "--words", "play", "a")
    assert run(*args).out == "3 words -> out\n"
    assert {path.name for path in Path("out").iterdir()} == {
        "vectors.tsv", "metadata.tsv", "projector_config.pbtxt",
    }  # fmt: skip
    assert_rejected(run(*args), "out exists already")
    result = run(*args, "--overwrite", "--json", "--max-words", 2)
    assert json.loads(result.out) == {"folder": "out", "words": 2}
    assert_rejected(run(*args, "--overwrite", "--layer", "7"), "a number from 0 to 2")
