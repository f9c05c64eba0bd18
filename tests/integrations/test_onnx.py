"""ONNX files in ONNX Runtime. Oracles: `Embedder.embed`; ONNX's own checker."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.hash import hash_words
from elmore.embedder import Embedder
from elmore.errors import InputError, MissingExtraError
from elmore.integrations import onnx as integration
from elmore.integrations.onnx import export
from elmore.text.vocabulary import Vocabulary
from tests.integrations.test_doors import TEXTS

TINY = replace(BiLMConfig.tiny(), cell_clip=0.02, projection_clip=0.01)  # values are clipped
CONFIGS = {
    "tiny": TINY,
    "unprojected": replace(
        TINY, dim=28, cell_dim=28, project_cells=False, project_filters=False, num_highways=0
    ),
    "three layers": replace(TINY, num_layers=3, activation="tanh", max_characters=12),
    "plain": replace(TINY, num_layers=1, residual=False, cell_clip=None, projection_clip=None),
    "words": replace(TINY, vocab_size=6),
}
VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "the", "bank", "\uc740\ud589"])
WORDS = st.sampled_from([*VOCABULARY, "banks"]) | st.text(min_size=1, max_size=60)
SENTENCES = st.lists(st.lists(WORDS, max_size=9), min_size=1, max_size=5)

Run = Callable[[list[list[str]]], tuple[np.ndarray, np.ndarray]]


def open_session(file: Path, elmo: Embedder) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options)
    return lambda sentences: session.run(
        ["layers", "mask"], {"ids": elmo.encode(sentences).ids.numpy()}
    )


@pytest.fixture(scope="module", params=CONFIGS, ids=str)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Embedder, Run]:
    """A model, and a function that runs its ONNX file."""
    torch.manual_seed(0)
    config = CONFIGS[request.param]
    vocabulary = VOCABULARY if config.vocab_size else None
    elmo = Embedder(BiLM(config), device="cpu", vocabulary=vocabulary)
    file = tmp_path_factory.mktemp("onnx") / "elmo.onnx"
    export(file, elmo)
    return elmo, open_session(file, elmo)


@settings(max_examples=30, deadline=None)
@given(sentences=SENTENCES)
def test_padded_batches_equal_single_sentences(
    exported: tuple[Embedder, Run], sentences: list[list[str]]
) -> None:
    elmo, run = exported
    layers, mask = run(sentences)
    longest = max(map(len, sentences))
    assert layers.shape == (len(sentences), elmo.num_layers, longest, elmo.dim)
    assert layers.dtype == np.float32
    if elmo.config.project_cells and elmo.config.projection_clip and longest:
        assert np.abs(layers[:, 1]).max() == np.float32(0.01)
    for row, is_word, words in zip(layers, mask, sentences, strict=True):
        [expected] = elmo.embed([words])
        np.testing.assert_allclose(row[:, : len(words)], expected, rtol=0, atol=1e-6)
        assert not row[:, len(words) :].any()
        assert is_word.tolist() == [True] * len(words) + [False] * (longest - len(words))


@pytest.mark.filterwarnings("ignore:most letters of the text are not Latin")
def test_hostile_texts_have_the_vectors_of_the_embedder(folder: Path, tmp_path: Path) -> None:
    elmo = elmore.load(folder, device="cpu")
    export(tmp_path / "elmo.onnx", folder)
    run = open_session(tmp_path / "elmo.onnx", elmo)
    layers, _ = run([elmore.tokenize(text) for text in TEXTS])
    for row, expected in zip(layers, elmo.embed(TEXTS), strict=True):
        np.testing.assert_allclose(row[:, : expected.shape[1]], expected, rtol=0, atol=1e-6)


def test_file_is_valid_and_has_dynamic_shapes(embedder: Embedder, tmp_path: Path) -> None:
    export(tmp_path / "elmo.onnx", embedder)
    model = onnx.load(tmp_path / "elmo.onnx")
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        "ids": ["batch", "tokens", 50],
        "layers": ["batch", 3, "words", 32],
        "mask": ["batch", "words"],
    }


def test_metadata_describes_the_model(tmp_path: Path) -> None:
    elmo = Embedder(
        BiLM(CONFIGS["words"]), vocabulary=VOCABULARY, device="cpu", tokenizer="whitespace",
        language="ko",
    )  # fmt: skip
    result = export(tmp_path / "elmo.onnx", elmo)
    session = onnxruntime.InferenceSession(result.file)
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata == result.metadata
    assert result.bytes == result.file.stat().st_size
    config = json.loads(metadata.pop("config"))
    assert config == json.loads(json.dumps(asdict(elmo.config)))
    assert metadata == {
        "elmore_version": elmore.__version__,
        "weights_hash": elmo.weights_hash,
        "vocabulary_hash": hash_words(VOCABULARY),
        "tokenizer": "whitespace",
        "language": "ko",
    }


def test_current_weights_are_exported(bilm: BiLM, embedder: Embedder, tmp_path: Path) -> None:
    bilm.encode.embed.weight.data *= 2
    result = export(tmp_path / "elmo.onnx", embedder)
    embedder.refresh()
    assert result.metadata["weights_hash"] == embedder.weights_hash
    layers, _ = open_session(result.file, embedder)([["bank"]])
    np.testing.assert_allclose(layers[0], embedder.embed([["bank"]])[0], rtol=0, atol=1e-6)


def test_only_own_files_are_replaced(embedder: Embedder, tmp_path: Path) -> None:
    file = tmp_path / "elmo.onnx"
    export(file, embedder)
    before = file.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        export(file, embedder)
    export(file, embedder, overwrite=True)
    assert file.read_bytes() == before
    foreign = onnx.load(file)
    foreign.producer_name = "pytorch"
    for content in (b"precious", b"", foreign.SerializeToString()):
        file.write_bytes(content)
        with pytest.raises(InputError, match="elmore did not write"):
            export(file, embedder, overwrite=True)
        assert file.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["elmo.onnx"]


def test_failed_export_leaves_no_file(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        args[1].write_bytes(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx, "save_model", fail)
    with pytest.raises(OSError, match="No space left"):
        export(tmp_path / "elmo.onnx", embedder)
    assert list(tmp_path.iterdir()) == []


def test_invalid_arguments_are_rejected(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.onnx"):
        export(tmp_path / "elmo.pt", embedder)
    with pytest.raises(InputError, match="an Embedder is loaded already; pass language to load"):
        export(tmp_path / "elmo.onnx", embedder, language="ko")
    monkeypatch.setattr(integration, "_MAX_BYTES", 10_000)
    with pytest.raises(InputError, match=r"the weights have 0\.0 GB .* can hold 2 GB"):
        export(tmp_path / "elmo.onnx", embedder)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r'pip install "elmore\[onnx\]"'):
        export(tmp_path / "elmo.onnx", embedder)
    assert list(tmp_path.iterdir()) == []
