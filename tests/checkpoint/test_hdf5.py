"""HDF5 weights. Oracles: vectors published with the released code; a biLM in NumPy; round trips."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.hdf5 import read_hdf5, round_for_hdf5, write_hdf5
from elmore.checkpoint.pretrained import read_pretrained
from elmore.embedder import Embedder, load
from elmore.errors import InputError
from elmore.text.characters import encode_sentences
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary
from tests.oracles import released_bilm
from tests.oracles.releases import VARIANTS, Variant, drop, write_release

SENTENCE = ["the", "bank", "of", "a", "Straße", "."]


def read_documents(folder: Path) -> list[list[list[str]]]:
    [file] = folder.glob("*sentences.json")
    return [[s.split() for s in document] for document in json.loads(file.read_text())]


@torch.no_grad()
def test_batches_with_carried_state_equal_the_published_vectors(published: Path) -> None:
    bilm = read_hdf5(published / "lm_weights.hdf5", published / "options.json")
    documents = read_documents(published)
    state = None  # the released code carries the LSTM state over to the next batch
    for i in range(10):
        batch = [document[i] for document in documents]
        layers, state = bilm(*encode_sentences(batch), state)
        for row, words in enumerate(batch):
            with h5py.File(published / f"lm_embeddings_{row}.hdf5") as file:
                expected = np.concatenate(file[str(i)][...], axis=-1)  # forward, backward
            vectors = layers[row, -1, 1 : len(words) + 1]
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("document", range(3))
def test_embed_with_carried_state_equals_the_published_vectors(
    published: Path, document: int
) -> None:
    elmo = load(published / "lm_weights.hdf5", device="cpu")
    sentences = elmo.embed(read_documents(published)[document], layers="top", carry_state=True)
    with h5py.File(published / f"lm_embeddings_{document}.hdf5") as file:
        for i, vectors in enumerate(sentences):
            expected = np.concatenate(file[str(i)][...], axis=-1)
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=5e-6)


def test_word_vectors_equal_the_published_ones(published: Path) -> None:
    if not (published / "elmo_token_embeddings.hdf5").exists():
        pytest.skip("this fixture has no word vectors")
    elmo = load(published / "lm_weights.hdf5", device="cpu")
    words = (published / "vocab_test.txt").read_text().split("\n")
    with h5py.File(published / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    np.testing.assert_allclose(elmo.word_vectors(words), expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_written_files_equal_the_released_ones_for_a_bilm_in_numpy(
    name: str, tmp_path: Path
) -> None:
    """Oracle: a biLM in NumPy that reads the HDF5 datasets and shares no code with `BiLM`."""
    release = write_release(tmp_path / "theirs", VARIANTS[name])
    bilm = read_hdf5(release.weights_file, release.options_file)
    write_hdf5(bilm, tmp_path / "ours.hdf5", tmp_path / "ours.json")

    with h5py.File(tmp_path / "ours.hdf5") as file:
        weights = {}
        file.visititems(
            lambda path, item: weights.update({path: item[...]}) if hasattr(item, "dtype") else None
        )
    options = json.loads((tmp_path / "ours.json").read_text())
    expected, _ = released_bilm.embed(
        SENTENCE, release.weights, release.options, vocabulary=release.vocabulary
    )
    vectors, _ = released_bilm.embed(SENTENCE, weights, options, vocabulary=release.vocabulary)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    if not release.vocabulary:
        assert options["char_cnn"]["n_characters"] == 262  # required by bilm-tf
        assert "CNN_proj/W_proj" in weights  # required by AllenNLP


def test_round_trip_preserves_weights_and_options(tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS["usual"])
    bilm = read_hdf5(release.weights_file, release.options_file)
    write_hdf5(bilm, tmp_path / "again.hdf5", tmp_path / "again.json")
    with h5py.File(tmp_path / "again.hdf5") as file:
        for name, array in release.weights.items():
            if name.endswith("/B"):  # adding and subtracting 1 rounds the forget gate's bias
                np.testing.assert_allclose(file[name][...], array, atol=1e-7)
            else:
                np.testing.assert_array_equal(file[name][...], array)
    options = json.loads((tmp_path / "again.json").read_text())
    del options["elmore_options_hash"]
    assert options == release.options


@given(st.lists(st.floats(-100, 100, width=32), min_size=80, max_size=80))
def test_rounded_biases_are_close_and_survive_a_round_trip(values: list[float]) -> None:
    """Oracle: the formula that bilm-tf applies to the stored bias, in NumPy."""
    bilm = BiLM(BiLMConfig.tiny())
    size = bilm.config.cell_dim
    bias = bilm.state_dict()["forward_lstms.0.input.bias"]
    before = torch.tensor(values).repeat(-(-len(bias) // len(values)))[: len(bias)]
    bias.copy_(before)
    round_for_hdf5(bilm)
    forget = slice(size, 2 * size)
    stored = bias[forget].numpy() - np.float32(1)
    np.testing.assert_array_equal(stored + np.float32(1), bias[forget])
    np.testing.assert_allclose(bias, before, rtol=1e-7, atol=6e-8)
    bias[forget] = before[forget]
    assert torch.equal(bias, before)  # the other gates did not change


def test_character_table_with_a_padding_row_is_read(tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS["usual"])
    expected = Embedder(read_hdf5(*release[:2])).embed([SENTENCE])
    with h5py.File(release.weights_file, "r+") as file:
        padded = np.concatenate([np.zeros((1, 3), np.float32), file["char_embed"][...]])
        del file["char_embed"]
        file["char_embed"] = padded
    vectors = Embedder(read_hdf5(*release[:2])).embed([SENTENCE])
    np.testing.assert_array_equal(vectors[0], expected[0])


def test_float64_weights_are_loaded_as_float32(tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS["usual"])
    with h5py.File(release.weights_file, "r+") as file:
        table = file["char_embed"][...].astype(np.float64)
        del file["char_embed"]
        file["char_embed"] = table
    bilm = read_hdf5(release.weights_file, release.options_file)
    assert {p.dtype for p in bilm.parameters()} == {torch.float32}


def test_default_config_has_the_size_of_the_released_model() -> None:
    with torch.device("meta"):
        bilm = BiLM(BiLMConfig())
    assert sum(p.numel() for p in bilm.parameters()) == 93_600_864


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("lstm", "dim"), "the key 'dim' is missing"),
        (drop("char_cnn", "filters"), "the key 'filters' is missing"),
        (drop("lstm"), "no section 'lstm'"),
        (lambda o: o["lstm"].update(dim="many"), "invalid literal"),
        (lambda o: o["char_cnn"].update(activation="gelu"), "activation must be relu or tanh"),
        (lambda o: o.update(bidirectional=False), "expected a bidirectional one"),
        (lambda o: o["lstm"].update(dim=12), r"W_0 has shape \(12, 40\).*requires \(12, 48\)"),
        (lambda o: o["lstm"].update(n_layers=3), "lacks 6 of the .* weights"),
        (
            lambda o: o["lstm"].update(n_layers=1),
            r"Cell1/LSTMCell', but .* 1 LSTM and 2 highway layers",
        ),
        (lambda o: o["char_cnn"].update(n_highway=3), "such as 'CNN_high_2/W_carry'"),
        (lambda o: o["char_cnn"].update(n_highway=1), "has 'CNN_high_1', but .* 1 highway layers"),
        (drop("char_cnn", "n_highway"), "has 'CNN_high_0', but .* 0 highway layers"),
        (lambda o: o["char_cnn"].update(filters=[[1, 4]]), r"W_carry has shape|W_proj has shape"),
        (drop("char_cnn"), "the weights have no dataset 'embedding'"),
    ],
)
def test_invalid_or_mismatched_options_are_rejected(tmp_path: Path, change, message: str) -> None:
    release = write_release(tmp_path, Variant(edit_options=change))
    with pytest.raises(InputError, match=message):
        read_hdf5(release.weights_file, release.options_file)


def test_file_that_is_not_hdf5_is_rejected(tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS["usual"])
    release.weights_file.write_text("<html>404</html>")
    with pytest.raises(InputError, match="is not a readable HDF5 file"):
        read_hdf5(release.weights_file, release.options_file)


def test_hdf5_file_of_something_else_is_rejected(tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS["usual"])
    with h5py.File(release.weights_file, "w") as file:
        file["0"] = np.zeros((3, 2, 12))
    with pytest.raises(
        InputError, match=r"weights.hdf5 has no group 'RNN_0'; expected ELMo weights"
    ):
        read_hdf5(release.weights_file, release.options_file)


def test_truncated_hdf5_file_is_rejected(tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS["usual"])
    intact = release.weights_file.read_bytes()
    release.weights_file.write_bytes(intact[: len(intact) // 2])
    with pytest.raises(InputError, match="is not a readable HDF5 file"):
        read_hdf5(release.weights_file, release.options_file)


@pytest.mark.parametrize("text", ["not json", "[]", "\xff"])
def test_options_that_are_not_json_are_rejected(tmp_path: Path, text: str) -> None:
    release = write_release(tmp_path, VARIANTS["usual"])
    release.options_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"options.json (is not (a )?JSON|has no section 'lstm')"):
        read_hdf5(release.weights_file, release.options_file)


def test_tokenization_survives_a_round_trip(bilm: BiLM, tmp_path: Path) -> None:
    weights, options = tmp_path / "weights.hdf5", tmp_path / "options.json"
    write_hdf5(bilm, weights, options, Tokenization("whitespace", "ko"))
    assert read_pretrained(weights).tokenization == Tokenization("whitespace", "ko")
    write_hdf5(bilm, weights, options)
    assert read_pretrained(weights).tokenization is None


def test_failed_write_keeps_the_previous_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = write_release(tmp_path / "r", VARIANTS["word input"])
    bilm = read_hdf5(release.weights_file, release.options_file)
    words = Vocabulary.read(tmp_path / "r" / "vocab.txt")
    paths = (tmp_path / "w.hdf5", tmp_path / "options.json")
    write_hdf5(bilm, *paths, vocabulary=words)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert before.keys() == {"w.hdf5", "options.json", "vocab.txt"}

    def fail(_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elmore.checkpoint.hdf5.hash_weights", fail)
    with pytest.raises(OSError, match="No space left"):
        write_hdf5(bilm, *paths, vocabulary=Vocabulary(reversed(words.words)))
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert after == before
