"""simple_elmo's API. Oracles: vectors of simple_elmo 0.9.2; NumPy; a biLM in NumPy."""

import gzip
import logging
import re
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.language_model import read_language_model
from elmore.compat.simple_elmo import ElmoModel
from elmore.errors import InputError
from elmore.text.vocabulary import Vocabulary
from tests.golden.models import (
    MODELS,
    SAME_LENGTH,
    SENTENCES,
    SIMPLE_ELMO_BATCH,
    SIMPLE_ELMO_MODELS,
    digest,
)
from tests.oracles import released_bilm
from tests.oracles.releases import Release, write_release

TOLERANCE = 1e-6
PADDED = [["the", "bank", "of", "the", "river"], ["rates"], [], ["a", "b"]]
WORDS = ["<S>", "</S>", "<UNK>", "the", "bank", "river", "."]


@cache
def golden() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[1] / "golden" / "simple_elmo.npz") as file:
        return dict(file)


def load(folder: Path, batch_size: int = SIMPLE_ELMO_BATCH, **options: bool) -> ElmoModel:
    model = ElmoModel(device="cpu", **options)
    assert model.load(folder, max_batch_size=batch_size) == "The model is now loaded."
    return model


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return write_release(tmp_path, MODELS["usual"])


@pytest.fixture
def model(release: Release) -> ElmoModel:
    return load(release.options_file.parent)


def words_of(vectors: np.ndarray, texts: list[list[str]] = SENTENCES) -> np.ndarray:
    """Return the vectors of all words, one text after the other; check that padding is zero."""
    assert vectors.dtype == np.float64
    assert len(vectors) == len(texts)
    assert vectors.shape[-2] == max(map(len, texts))
    for row, words in zip(vectors, texts, strict=True):
        assert not row[..., len(words) :, :].any()
    rows = zip(vectors, texts, strict=True)
    return np.concatenate([row[..., : len(words), :] for row, words in rows], axis=-2)


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", SIMPLE_ELMO_MODELS)
def test_vectors_equal_those_of_simple_elmo(name: str, tmp_path: Path) -> None:
    release = write_release(tmp_path, MODELS[name])
    assert digest(release) == golden()[f"{name}/digest"]
    model = load(tmp_path)
    for layers in ("average", "top", "all"):
        vectors = model.get_elmo_vectors(SENTENCES, layers=layers)
        assert_close(words_of(vectors), golden()[f"{name}/{layers}"])
    cold = model.get_elmo_vectors(SENTENCES, warmup=False)
    assert_close(words_of(cold), golden()[f"{name}/no warm-up"])
    for layers in ("average", "top"):
        mean = model.get_elmo_vector_average(SAME_LENGTH, layers=layers)
        assert_close(mean, golden()[f"{name}/mean, {layers}"])
        assert mean.dtype == np.float64
    session = model.new_session()
    model.warmup(session, SENTENCES)
    model.get_elmo_vectors(SENTENCES, warmup=False, session=session)
    second = model.get_elmo_vectors(SENTENCES, warmup=False, session=session)
    assert_close(words_of(second), golden()[f"{name}/second call"])


def test_golden_vectors_depend_on_warm_up_and_session() -> None:
    """Otherwise, the comparisons would not test them."""
    for name in SIMPLE_ELMO_MODELS:
        warm, cold, second = (
            golden()[f"{name}/{kind}"] for kind in ("average", "no warm-up", "second call")
        )
        assert np.abs(warm - cold).max() > 0.01
        assert np.abs(warm - second).max() > 0.01


def test_attributes_of_a_loaded_model(model: ElmoModel, release: Release) -> None:
    lstm = release.options["lstm"]
    assert model.batch_size == SIMPLE_ELMO_BATCH
    assert model.vector_size == 2 * lstm["projection_dim"]
    assert model.n_layers == lstm["n_layers"] + 1
    assert model.max_chars == 50


def test_stateless_vectors_equal_the_bilm_from_a_zero_state(release: Release) -> None:
    """Oracle: the biLM in NumPy."""
    model = load(release.options_file.parent, batch_size=2, stateful=False)
    vectors = model.get_elmo_vectors(PADDED, layers="all")
    for row, words in zip(vectors, PADDED, strict=True):
        layers, _ = released_bilm.embed(words, release.weights, release.options)
        assert_close(row[:, : len(words)], layers[:, 1:-1])
    session = model.new_session()
    model.warmup(session, PADDED)
    assert np.array_equal(vectors, model.get_elmo_vectors(PADDED, layers="all", session=session))


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_averages_are_over_the_words_of_each_text_alone(model: ElmoModel, layers: str) -> None:
    """Oracle: NumPy, from the vectors of the words. simple_elmo counts padding as words."""
    vectors = model.get_elmo_vectors(PADDED, layers=layers)
    averages = model.get_elmo_vector_average(PADDED, layers=layers)
    for row, average, words in zip(vectors, averages, PADDED, strict=True):
        if not words:
            assert not average.any()
            continue
        mean = sum(row[..., k, :] for k in range(len(words))) / len(words)
        assert_close(average, mean / np.sqrt((mean**2).sum()))


@pytest.fixture(scope="module")
def shared_model(tmp_path_factory: pytest.TempPathFactory) -> ElmoModel:
    folder = tmp_path_factory.mktemp("shared")
    write_release(folder, MODELS["usual"])
    return load(folder)


@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.lists(st.text(max_size=5), max_size=4), max_size=5),
    batch_size=st.integers(1, 3),
)
def test_any_texts_have_the_shapes_of_simple_elmo(
    texts: list[list[str]], batch_size: int, shared_model: ElmoModel
) -> None:
    model = shared_model
    model.batch_size = batch_size
    words = max(map(len, texts), default=0)
    assert model.get_elmo_vectors(texts).shape == (len(texts), words, 12)
    assert model.get_elmo_vectors(texts, layers="all").shape == (len(texts), 3, words, 12)
    assert model.get_elmo_vector_average(texts).shape == (len(texts), 12)
    averages = model.get_elmo_vector_average(texts, layers="all")
    assert averages.shape == (len(texts), 3, 12)
    norms = np.linalg.norm(averages.reshape(len(texts), 36), axis=1)
    np.testing.assert_allclose(norms, [float(bool(text)) for text in texts])


def test_all_forms_of_models_load(release: Release, tmp_path: Path) -> None:
    """`<S>` comes after the first 100 lines of the vocabulary, where simple_elmo misses it."""
    expected = load(tmp_path).get_elmo_vectors(PADDED)
    vocabulary = "\n".join([*(f"word{i}" for i in range(200)), *WORDS])

    archive = tmp_path / "200.zip"  # as in the NLPL repository
    with zipfile.ZipFile(archive, "w") as file:
        file.write(release.weights_file, "model.hdf5")
        file.write(release.options_file, "options.json")
        file.writestr("vocab.txt", vocabulary)
        file.writestr("meta.json", "{}")
        file.writestr("README", "")

    several = tmp_path / "several"  # model.hdf5 is taken
    several.mkdir()
    (several / "options.json").write_bytes(release.options_file.read_bytes())
    (several / "model.hdf5").write_bytes(release.weights_file.read_bytes())
    (several / "another.hdf5").write_bytes(b"not HDF5")
    with gzip.open(several / "vocab.txt.gz", "wt") as file:
        file.write(vocabulary)

    for path in (archive, str(archive), several):
        assert np.array_equal(load(path).get_elmo_vectors(PADDED), expected)


def test_options_for_training_load(tmp_path: Path) -> None:
    """simple_elmo refuses n_characters of 261."""
    release = write_release(tmp_path, MODELS["261 characters"])
    [row] = load(tmp_path).get_elmo_vectors([["the"]], warmup=False, layers="all")
    layers, _ = released_bilm.embed(["the"], release.weights, release.options)
    assert_close(row, layers[:, 1:-1])


def test_invalid_input_is_rejected(model: ElmoModel, release: Release, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model is loaded; call load first"):
        ElmoModel().get_elmo_vectors([["a"]])
    with pytest.raises(InputError, match="no such model"):
        load(tmp_path / "nope.zip")
    with pytest.raises(InputError, match="max_batch_size must be at least 1, got 0"):
        load(tmp_path, batch_size=0)
    for method in (model.get_elmo_vectors, model.get_elmo_vector_average):
        with pytest.raises(InputError, match="layers must be average, top or all, got 'first'"):
            method([["a"]], layers="first")
        with pytest.raises(TypeError, match="sentence 1 is a string"):
            method([["a"], "b c"])
        with pytest.raises(TypeError, match="expected a list of texts, got one string"):
            method("b c")
        with pytest.raises(InputError, match="elmore does not use TensorFlow: omit session"):
            method([["a"]], session=object())
    other = load(tmp_path)
    with pytest.raises(InputError, match="expected a session of this model"):
        model.warmup(other.new_session(), [["a"]])


def test_logging_is_left_to_the_program(model: ElmoModel, caplog: pytest.LogCaptureFixture) -> None:
    """simple_elmo configures the root logger."""
    handlers = list(logging.getLogger().handlers)
    with caplog.at_level(logging.INFO):
        model.get_elmo_vectors([["a"]] * (SIMPLE_ELMO_BATCH + 1))
    assert caplog.messages == [
        "Warming up ELMo on 5 sentences",
        "Texts in the current batch: 5",
        "Texts in the current batch: 5",
        "Texts in the current batch: 1",
    ]
    assert logging.getLogger().handlers == handlers


@pytest.fixture
def language_model(tmp_path: Path) -> Path:
    bilm = elmore.BiLM(elmore.BiLMConfig.tiny())
    softmax = Softmax(dim=bilm.config.dim, vocab_size=len(WORDS))
    folder = tmp_path / "lm"
    folder.mkdir()
    write_directory(bilm, folder, vocabulary=Vocabulary(WORDS), softmax=softmax)
    return folder


def test_substitutes_are_the_most_probable_words_in_their_context(language_model: Path) -> None:
    """Oracle: the probabilities from the layers of `BiLM`, for one sentence at a time."""
    data = ["the bank .", "zyzzyva", "", "the river"]
    model = ElmoModel(device="cpu")
    model.load(language_model, max_batch_size=3, full=True)
    saved = elmore.load(language_model, device="cpu")
    softmax = read_language_model(language_model).model.softmax
    results = model.get_elmo_substitutes(data, topn=4)
    assert len(results) == len(data)
    for text, substitutes in zip(data, results, strict=True):
        words = text.split()
        assert [entry["word"] for entry in substitutes] == words
        layers = saved.bilm.eval()(*saved.encode([words])).layers[0, -1].detach()  # (T, D)
        forward, backward = layers.split(saved.config.dim, dim=-1)
        for k, entry in enumerate(substitutes):
            for name, h in (("forward", forward[k]), ("backward", backward[k + 2])):
                logits = (softmax.weight @ h + softmax.bias).detach().double().numpy()
                log_p = logits - np.log(np.exp(logits).sum())
                best = sorted(range(2, len(WORDS)), key=lambda i, p=log_p: -p[i])[:4]
                assert entry[name]["candidates"] == best
                assert entry[name]["candidate_words"] == [WORDS[i] for i in best]
                np.testing.assert_allclose(entry[name]["logp"], log_p[best], atol=1e-4)
    [[entry]] = model.get_elmo_substitutes(["the"], topn=99, nodelimiters=False)
    assert sorted(entry["forward"]["candidates"]) == list(range(len(WORDS)))
    assert np.exp(entry["backward"]["logp"]).sum() == pytest.approx(1, abs=1e-3)


def test_substitutes_need_a_softmax(release: Release, model: ElmoModel) -> None:
    with pytest.raises(InputError, match=re.escape("with full=True. Released HDF5 files have no")):
        model.get_elmo_substitutes(["the bank"])
    with pytest.raises(InputError, match="has no softmax; full=True needs a directory written by"):
        ElmoModel().load(release.options_file.parent, full=True)
    (release.options_file.parent / "checkpoint").write_text("model.ckpt-1")
    release.weights_file.unlink()
    with pytest.raises(InputError, match="elmore does not read TensorFlow checkpoints"):
        ElmoModel().load(release.options_file.parent, full=True)


def test_substitutes_reject_invalid_input(language_model: Path) -> None:
    model = ElmoModel(device="cpu")
    model.load(language_model, full=True)
    with pytest.raises(TypeError, match="got one string"):
        model.get_elmo_substitutes("the bank")
    with pytest.raises(InputError, match="topn must be at least 1, got 0"):
        model.get_elmo_substitutes(["the bank"], topn=0)
