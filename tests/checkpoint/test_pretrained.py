"""Finding and loading models. Oracle: the same model loaded from explicit paths."""

import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.hdf5 import read_hdf5
from elmore.checkpoint.pretrained import read_pretrained
from elmore.embedder import Embedder, load
from elmore.errors import InputError
from tests.oracles import released_bilm
from tests.oracles.releases import VARIANTS, VOCABULARY, Release, write_release

SENTENCE = ["the", "bank", "of", "the", "river"]


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return write_release(tmp_path / "release", VARIANTS["usual"])


def vectors(*args: object, **kwargs: object) -> np.ndarray:
    return load(*args, device="cpu", **kwargs).embed([SENTENCE])[0]  # type: ignore[arg-type]


def test_files_directories_and_archives_load_the_same_model(
    release: Release, tmp_path: Path
) -> None:
    expected = vectors(release.weights_file, options=release.options_file)
    folder = release.weights_file.parent
    models: list[object] = [release.weights_file, str(release.weights_file), folder]
    for kind in ("zip", "gztar", "xztar"):
        models.append(shutil.make_archive(str(tmp_path / "flat"), kind, folder))
        models.append(shutil.make_archive(str(tmp_path / "nested"), kind, tmp_path, "release"))
    write_directory(read_hdf5(release.weights_file, release.options_file), tmp_path / "own")
    models += [tmp_path / "own", shutil.make_archive(str(tmp_path / "o"), "zip", tmp_path / "own")]
    for model in models:
        np.testing.assert_array_equal(vectors(model), expected, err_msg=str(model))


def test_options_file_with_the_prefix_of_the_weights_is_used(
    release: Release, tmp_path: Path
) -> None:
    shutil.copy(release.weights_file, tmp_path / "elmo_weights.hdf5")
    shutil.copy(release.options_file, tmp_path / "elmo_options.json")
    assert vectors(tmp_path / "elmo_weights.hdf5").shape == (3, 5, 12)


def test_word_input_model_uses_its_vocabulary_file(tmp_path: Path) -> None:
    release = write_release(tmp_path / "r", VARIANTS["word input"])
    expected = vectors(release.weights_file)
    vocab = shutil.move(tmp_path / "r" / "vocab.txt", tmp_path / "words.txt")
    np.testing.assert_array_equal(vectors(release.weights_file, vocab=vocab), expected)
    with pytest.raises(InputError, match="Pass the path of the vocabulary file of this word-input"):
        load(release.weights_file)
    (tmp_path / "words.txt").write_text("\n".join(VOCABULARY[:-1]))
    with pytest.raises(InputError, match="has 8 words; the embedding table of the model has 9"):
        load(release.weights_file, vocab=vocab)


def test_word_input_directory_includes_its_vocabulary(tmp_path: Path) -> None:
    release = write_release(tmp_path / "r", VARIANTS["word input"])
    bilm, vocabulary, *_ = read_pretrained(release.weights_file)
    write_directory(bilm, tmp_path / "own", vocabulary=vocabulary)
    np.testing.assert_array_equal(vectors(tmp_path / "own"), vectors(release.weights_file))


def test_word_input_bilm_needs_a_vocabulary(tmp_path: Path) -> None:
    release = write_release(tmp_path, VARIANTS["word input"])
    with pytest.raises(InputError, match="reads words: pass its vocabulary"):
        Embedder(read_hdf5(release.weights_file, release.options_file))


def test_invalid_models_are_rejected(release: Release, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.zip").write_text("not an archive")
    with pytest.raises(InputError, match="no such model"):
        load(tmp_path / "nothing")
    with pytest.raises(InputError, match="contains no model"):
        load(tmp_path / "empty")
    with pytest.raises(InputError, match="is not a readable archive"):
        load(tmp_path / "bad.zip")
    (tmp_path / "bad.tar.gz").write_text("not an archive")
    with pytest.raises(InputError, match=r"is not a readable archive \(.*\)$"):  # one line
        load(tmp_path / "bad.tar.gz")
    damaged = Path(shutil.make_archive(str(tmp_path / "a"), "zip", release.weights_file.parent))
    intact = damaged.read_bytes()
    damaged.write_bytes(intact[:500] + b"garbage" * 50 + intact[850:])
    with pytest.raises(InputError, match="is not a readable archive"):
        load(damaged)
    escaping = tmp_path / "escape.tar"
    with tarfile.open(escaping, "w") as tar:
        tar.add(release.options_file, "../../escaped.json")
    with pytest.raises(InputError, match="is not a readable archive"):
        load(escaping)
    shutil.copy(release.weights_file, release.weights_file.with_name("other.hdf5"))
    with pytest.raises(InputError, match="several models"):
        load(release.weights_file.parent)
    release.options_file.unlink()
    with pytest.raises(InputError, match=r"no options.json next to these weights"):
        load(release.weights_file)


@pytest.mark.parametrize("name", ["weights.th", "best.th"])
def test_trained_models_of_allennlp_are_recognized(
    release: Release, tmp_path: Path, name: str
) -> None:
    """The ELMo files that AllenNLP 0.9 adds to its archives load from the extracted archive."""
    folder = tmp_path / "model"
    (folder / "fta").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / name).write_bytes(b"")
    weights, options = folder / "fta" / "elmo.weight_file", folder / "fta" / "elmo.options_file"
    shutil.copy(release.weights_file, weights)
    shutil.copy(release.options_file, options)
    archive = shutil.make_archive(str(tmp_path / "model"), "gztar", folder)
    for path in (folder, archive):
        with pytest.raises(
            InputError, match=rf"^{path} is a trained model of AllenNLP, not a biLM"
        ):
            load(path)
    np.testing.assert_array_equal(vectors(weights, options=options), vectors(release.weights_file))
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=rf"^{folder} is a trained model of AllenNLP, not a biLM"):
        load(folder)
    deep = tmp_path / "deep" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / name).touch()
    with pytest.raises(InputError, match="contains no model"):  # large trees are not searched
        load(tmp_path / "deep")


def test_swapped_files_and_folders_are_recognized(release: Release, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is an HDF5 file; expected .* Are options and weights"):
        read_hdf5(release.options_file, release.weights_file)
    with pytest.raises(InputError, match="is a folder; expected HDF5 weights"):
        read_hdf5(tmp_path, release.options_file)


def test_vocabulary_next_to_a_character_model_is_ignored(release: Release) -> None:
    release.weights_file.with_name("vocab.txt").write_text("not a valid vocabulary")
    assert vectors(release.weights_file).shape == (3, 5, 12)


def test_arguments_without_a_use_are_rejected(release: Release, tmp_path: Path) -> None:
    write_directory(read_hdf5(release.weights_file, release.options_file), tmp_path / "own")
    with pytest.raises(InputError, match=r"has its own config.json; options is for HDF5 weights"):
        load(tmp_path / "own", options=tmp_path / "nope.json")
    with pytest.raises(InputError, match=r"nope.txt: this model reads characters"):
        load(tmp_path / "own", vocab=tmp_path / "nope.txt")


def test_a_folder_of_several_models_is_rejected(release: Release, tmp_path: Path) -> None:
    bilm = read_hdf5(release.weights_file, release.options_file)
    write_directory(bilm, tmp_path / "runs" / "a")
    assert read_pretrained(tmp_path / "runs").bilm.config == bilm.config
    write_directory(bilm, tmp_path / "runs" / "b")
    with pytest.raises(InputError, match=r"runs contains several models \(a, b\); pass the path"):
        load(tmp_path / "runs")


@pytest.mark.parametrize("name", ["notes.txt", "vectors.parquet", "weights.hdf5"])
def test_error_for_other_files_says_what_is_expected(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / name)
    message = rf"{name} is neither an HDF5 file nor an archive \(.zip, .* expected HDF5 weights"
    with pytest.raises(InputError, match=message):
        read_pretrained(tmp_path / name)


@pytest.mark.parametrize("kind", ["zip", "gztar"])
@pytest.mark.parametrize(
    "damaged", ["release/options.json", "release/weights.hdf5", "own/config.json"]
)
def test_errors_inside_archives_name_the_archive_and_its_member(
    release: Release, tmp_path: Path, kind: str, damaged: str
) -> None:
    root = Path(damaged).parts[0]
    if root == "own":
        write_directory(read_hdf5(release.weights_file, release.options_file), tmp_path / "own")
    file = tmp_path / damaged
    assert file.exists()
    file.write_bytes(b"{")
    archive = shutil.make_archive(str(tmp_path / "model"), kind, tmp_path, root)
    with pytest.raises(InputError) as error:
        read_pretrained(archive)
    assert f"{archive}/{damaged}" in str(error.value)
    assert tempfile.gettempdir() + "/elmore-" not in str(error.value)


# --- layouts of published archives. Oracle: a biLM in NumPy

# As simple_elmo_training writes options.json, with other sizes. The NLPL repository asks for
# n_characters = 262, but some archives have 261.
TRAINING = {
    "bidirectional": True,
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "n_epochs": 3,
    "n_train_tokens": 1000,
    "batch_size": 128,
    "n_tokens_vocab": len(VOCABULARY),
    "unroll_steps": 20,
    "n_negative_samples_batch": 4096,
}


@pytest.mark.parametrize("n_characters", [261, 262])
@pytest.mark.parametrize("with_vocabulary", [True, False])
def test_nlpl_archive_is_loaded_as_it_is(
    tmp_path: Path, n_characters: int, with_vocabulary: bool
) -> None:
    def edit(options: dict) -> None:
        options.update(TRAINING)
        options["char_cnn"]["n_characters"] = n_characters

    release = write_release(tmp_path / "files", VARIANTS["usual"]._replace(edit_options=edit))
    with zipfile.ZipFile(tmp_path / "195.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "ELMo, Norwegian-Bokmaal CoNLL17 corpus\n")
        archive.writestr("meta.json", '{"id": 195, "algorithm": {"name": "ELMo"}, "files": []}')
        archive.write(release.weights_file, "model.hdf5")
        archive.write(release.options_file, "options.json")
        if with_vocabulary:
            archive.writestr("vocab.txt", "\n".join(VOCABULARY))
    expected, _ = released_bilm.embed(SENTENCE, release.weights, release.options)
    result = vectors(tmp_path / "195.zip")
    np.testing.assert_allclose(result, expected[:, 1:-1], rtol=0, atol=2e-6)


@pytest.mark.parametrize("folder", [True, False], ids=["folder", "archive"])
def test_seqvec_is_loaded_as_it_is(tmp_path: Path, folder: bool) -> None:
    release = write_release(tmp_path / "seqvec" / "uniref50_v2", VARIANTS["usual"])
    assert release.options["char_cnn"]["n_characters"] == 262
    assert release.options["char_cnn"]["max_characters_per_token"] == 50
    model = tmp_path / "seqvec" / "uniref50_v2"
    if not folder:
        model = Path(shutil.make_archive(str(tmp_path / "seqvec"), "zip", tmp_path / "seqvec"))
    residues = list("SEQWENCEX")
    expected, _ = released_bilm.embed(residues, release.weights, release.options)
    [protein] = load(model, device="cpu").embed([residues])
    assert protein.shape == (3, 9, 12)
    np.testing.assert_allclose(protein, expected[:, 1:-1], rtol=0, atol=2e-6)


def test_archive_of_elmoformanylangs_is_rejected(tmp_path: Path) -> None:
    """Many archives of the NLPL repository have this layout."""
    with zipfile.ZipFile(tmp_path / "136.zip", "w") as archive:
        for name in ("char.dic", "config.json", "encoder.pkl", "token_embedder.pkl", "meta.json"):
            archive.writestr(name, "{}")
    with pytest.raises(InputError, match=r"136.zip is a model of ELMoForManyLangs, which is not"):
        load(tmp_path / "136.zip")
