"""SeqVec's API and command. Oracles: vectors of seqvec 0.4.1 with AllenNLP 0.9.0; the embedder."""

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import elmore
from elmore.compat import seqvec
from elmore.compat.allennlp import ElmoEmbedder
from elmore.compat.seqvec import check_output, get_embeddings, main, save_from_generator
from elmore.errors import InputError
from tests.golden.models import digest
from tests.golden.proteins import FASTA, MODEL, RUNS, stored_dims
from tests.oracles.releases import VARIANTS, write_release

TOLERANCE = 5e-6


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[1] / "golden" / "seqvec.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, stored: dict[str, np.ndarray]) -> Path:
    """A folder with the model and the FASTA file of the golden vectors."""
    folder = tmp_path_factory.mktemp("seqvec")
    assert digest(write_release(folder, MODEL)) == stored["digest"]
    (folder / "proteins.fasta").write_bytes(FASTA.encode())
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a small model and a FASTA file."""
    write_release(tmp_path / "model", VARIANTS["usual"])
    (tmp_path / "p.fasta").write_text(">a|1\nMKVL\n>b|2\nMK\n>c|3\nMSEQVE\n>d|4\nMSEQ\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*(empty slice|in divide):RuntimeWarning")
@pytest.mark.parametrize("name", RUNS)
def test_vectors_and_order_equal_those_of_seqvec(
    large: Path, stored: dict[str, np.ndarray], name: str
) -> None:
    results = dict(get_embeddings(large / "proteins.fasta", large, cpu=True, **RUNS[name]))
    assert list(results) == stored[f"{name}/ids"].tolist()
    compared = 0
    for key, vectors in results.items():
        expected = stored.get(f"{name}/{key}")
        if expected is None:  # the empty protein, for which AllenNLP has a fixed width
            assert np.isnan(vectors).all() or len(vectors) == 0
            continue
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(stored_dims(vectors), expected, rtol=0, atol=TOLERANCE)
        compared += 1
    assert compared == len(results) - 1


def test_golden_vectors_depend_on_the_batches(stored: dict[str, np.ndarray]) -> None:
    """Otherwise, the comparison would not test the state."""
    first, other = (stored[f"{name}/P7"] for name in ("small batches", "one batch"))
    assert np.abs(first - other).max() > 0.1


def test_stateless_vectors_depend_on_the_protein_alone(folder: Path) -> None:
    elmo = elmore.load("model", device="cpu")
    for batchsize in (1, 7, 100):
        results = dict(get_embeddings("p.fasta", "model", batchsize=batchsize, stateful=False))
        for key, sequence in {"1": "MKVL", "2": "MK", "3": "MSEQVE", "4": "MSEQ"}.items():
            [layers] = elmo.embed([list(sequence)])
            np.testing.assert_allclose(results[key], layers.sum(axis=0), rtol=0, atol=2e-6)


def test_folders_and_compressed_files_are_read(folder: Path) -> None:
    nested = folder / "data" / "deep"
    nested.mkdir(parents=True)
    (nested / "one.fasta").write_text(">x|1\nMKVL\n")
    (folder / "data" / "two.fasta.txt").write_text(">x|2\nMK\n>x|1\nMKVLAA\n")
    (folder / "data" / "notes.txt").write_text("not FASTA")
    vectors = dict(get_embeddings(folder / "data", "model"))
    assert {key: len(rows) for key, rows in vectors.items()} == {"2": 2, "1": 6}


def run_command(*args: object) -> int:
    try:
        main([str(arg) for arg in args])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_command_writes_the_files_of_seqvec(folder: Path) -> None:
    expected = dict(get_embeddings("p.fasta", "model", per_protein=True))
    assert run_command("-i", "p.fasta", "-o", "v.npy", "--protein", "--silent") == 0
    assert json.loads(Path("v.json").read_text()) == list(expected) == ["2", "1", "4", "3"]
    np.testing.assert_array_equal(np.load("v.npy"), np.stack(list(expected.values())))
    for name in ("v.h5", "v.npz", "v.npz"):  # as in seqvec, an existing file is replaced
        options = ["--model", folder / "model", "--layer", "all", "--id", 0, "--split-char", "|"]
        assert run_command("-i", "p.fasta", "-o", name, *options, "--batchsize", 5) == 0
    expected = dict(get_embeddings("p.fasta", "model", layer="all", id_field=0, batchsize=5))
    with h5py.File("v.h5") as file, np.load("v.npz") as archive:
        assert {*file} == {*archive} == {"a", "b", "c", "d"}
        for key, vectors in expected.items():
            assert vectors.shape[1] == 36
            np.testing.assert_array_equal(file[key][...], vectors)
            np.testing.assert_array_equal(archive[key], vectors)


def test_command_runs_as_a_module(folder: Path) -> None:
    command = [sys.executable, "-m", "elmore.compat.seqvec", "-i", "p.fasta", "-o", "v.csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "elmore: v.csv: expected a name that ends in .h5, .hdf5, .npz, .npy\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-o", "v.npy"], "an .npy file holds one vector per protein"),
        (["-o", "v.h5", "--model", "none"], "none has no weights.hdf5 and options.json"),
        (["-o", "v.h5", "--id", 2], "p.fasta, line 1: no field 2 in the header 'a|1'"),
        (["-o", "v.h5", "--id", -2], "id_field must be a number from 0"),
        (["-o", "v.h5", "--split-char", ""], "split_char is empty"),
        (["-o", "v.h5", "--batchsize", 0], "batchsize must be at least 1, got 0"),
        (["-o", "v.h5", "-i", "missing.fasta"], "missing.fasta: No such file"),
        (["-o", "v.h5", "-i", "model"], "model has no proteins"),
        (["-o", "v.h5", "-i", "model/options.json"], "options.json, line 1: expected a header"),
    ],
)
def test_command_rejects_invalid_input(
    folder: Path, args: list[Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("-i", "p.fasta", "--silent", *args) == 2
    assert message in capsys.readouterr().err
    assert not Path("v.h5").exists()


def test_layers_that_a_model_does_not_have_are_rejected(tmp_path: Path) -> None:
    write_release(tmp_path, VARIANTS["one layer"])
    (tmp_path / "p.fasta").write_text(">a|1\nMKVL\n")
    for layer, message in (
        ("LSTM2", "2 layers has no LSTM2"),
        ("LSTM3", "layer must be sum, all, CNN, LSTM1 or LSTM2"),
    ):
        with pytest.raises(InputError, match=message):
            next(get_embeddings(tmp_path / "p.fasta", tmp_path, layer=layer))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="there are no arrays"):
        save_from_generator(tmp_path / "v.npy", True, [])


def test_too_little_gpu_memory_falls_back_to_single_proteins_and_the_cpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = dict(get_embeddings("p.fasta", "model", stateful=False))
    embed_batch, loaded = ElmoEmbedder.embed_batch, []

    def with_little_memory(self: ElmoEmbedder, batch: list[list[str]]) -> list[np.ndarray]:
        if len(batch) > 1 or (len(batch[0]) > 4 and self is loaded[0]):
            raise torch.OutOfMemoryError
        return embed_batch(self, batch)

    def load(*args: Any, **options: Any) -> ElmoEmbedder:
        loaded.append(get_elmo_model(*args, **options))
        return loaded[-1]

    get_elmo_model = seqvec.get_elmo_model
    monkeypatch.setattr(seqvec, "get_elmo_model", load)
    monkeypatch.setattr(ElmoEmbedder, "embed_batch", with_little_memory)
    results = dict(get_embeddings("p.fasta", "model", stateful=False))
    assert list(results) == list(expected)
    for key, vectors in results.items():
        np.testing.assert_allclose(vectors, expected[key], rtol=0, atol=2e-6)
    assert len(loaded) == 2


def test_options_are_checked_before_the_first_protein(folder: Path) -> None:
    with pytest.raises(InputError, match="batchsize must be at least 1, got -1"):
        get_embeddings("p.fasta", "model", batchsize=-1)
    with pytest.raises(InputError, match="layer must be sum, all, CNN, LSTM1 or LSTM2"):
        get_embeddings("p.fasta", "model", layer="LSTM3")  # type: ignore[arg-type]


def test_only_a_complete_file_is_said_to_replace_another(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path("v.h5").write_bytes(b"earlier")
    assert run_command("-i", "p.fasta", "-o", "v.h5", "--silent", "--model", "none") == 2
    assert Path("v.h5").read_bytes() == b"earlier"
    assert not caplog.messages
    assert run_command("-i", "p.fasta", "-o", "v.h5", "--silent") == 0
    assert caplog.messages == ["Replaced v.h5"]


def can_be_written(names: list[str]) -> bool:
    """The oracle: h5py itself."""
    try:
        with h5py.File(BytesIO(), "w") as datasets:
            for name in names:
                datasets.create_dataset(name, data=[0.0])
    except (TypeError, ValueError):
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.text("ab/.", min_size=1, max_size=5), max_size=4))
@example(names=["a", "a/b"])
@example(names=["a/b", "a"])
@example(names=["a/b", "a/c"])
@example(names=["a/./a"])  # h5py fails, but not for a/./b/c
def test_ids_are_rejected_if_hdf5_cannot_hold_them_together(names: list[str]) -> None:
    try:
        check_output(Path("v.h5"), per_protein=False, ids=names)
        is_valid = True
    except InputError:
        is_valid = False
    has_dot = any("." in name.split("/") for name in names)  # h5py drops some of them
    assert is_valid == (can_be_written(names) and not has_dot)
    check_output(Path("v.npz"), per_protein=False, ids=names)


def test_command_rejects_ids_that_hdf5_cannot_hold_together_before_it_loads_the_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.fasta").write_text(">a\nMKVL\n>a/b\nMK\n")
    args = ("-i", "p.fasta", "--id", 0, "--silent")
    assert run_command(*args, "-o", "v.h5", "--model", "none") == 2
    assert capsys.readouterr().err == (
        "elmore: HDF5 separates groups with '/', so the ids 'a' and 'a/b' can't be in one file; "
        "choose another field of the headers as id, or an .npz file\n"
    )
    assert run_command(*args, "-o", "v.npz") == 0
    with pytest.raises(InputError, match="the ids 'a/b' and 'a' can't be in one file"):
        save_from_generator("v.h5", False, get_embeddings("p.fasta", "model", id_field=0))
    assert not Path("v.h5").exists()
