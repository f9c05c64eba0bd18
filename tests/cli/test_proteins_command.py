"""`elmore embed --format fasta`. Oracle: the Python function."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import elmore
from elmore.checkpoint.directory import write_directory
from tests.cli.conftest import assert_rejected

FASTA = ">sp|P1|A_HUMAN Alpha\nMKVLAAG\n>sp|P2|B_HUMAN Beta\nMSEQ\n"


@pytest.fixture
def folder(bilm: elmore.BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_directory(bilm, tmp_path / "model")
    (tmp_path / "p.fasta").write_text(FASTA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command_writes_what_the_function_writes(run, folder: Path) -> None:
    fasta = ("embed", "p.fasta", "-m", "model", "--format", "fasta", "-o")
    result = run(*fasta, "v.h5")
    assert result.code == 0
    assert result.out.startswith("2 proteins -> v.h5 (11 residues in ")
    options = ("--per-protein", "--layers", "all", "--id-field", 1, "--dtype", "float16", "--json")
    printed = json.loads(run(*fasta, "v.npy", *options).out)
    assert printed.pop("seconds") >= 0
    assert printed == {"file": "v.npy", "proteins": 2, "residues": 11}
    assert json.loads(Path("v.json").read_text()) == ["P1", "P2"]
    assert np.load("v.npy").dtype == np.float16
    elmore.embed_fasta("p.fasta", "expected.h5", "model")
    elmore.embed_fasta(
        "p.fasta", "expected.npy", "model", per_protein=True, layers="all", dtype="float16"
    )
    np.testing.assert_array_equal(np.load("v.npy"), np.load("expected.npy"))
    with h5py.File("v.h5") as file, h5py.File("expected.h5") as expected:
        assert {*file} == {*expected} == {"sp|P1|A_HUMAN", "sp|P2|B_HUMAN"}
        for key in file:
            np.testing.assert_array_equal(file[key][...], expected[key][...])
    assert_rejected(run(*fasta, "v.h5"), "exists already")
    assert run(*fasta, "v.h5", "--overwrite", "--id-field", -1, "--split-char", "-").code == 0
    with h5py.File("v.h5") as file:
        assert {*file} == {"sp|P1|A_HUMAN Alpha", "sp|P2|B_HUMAN Beta"}


def test_command_reads_standard_input(folder: Path) -> None:
    command = [sys.executable, "-c", "from elmore.cli import main; main()", "embed", "-"]
    command += ["-m", "model", "--format", "fasta", "-o", "v.npz"]
    subprocess.run(command, input=FASTA.encode(), check=True, capture_output=True)
    with np.load("v.npz") as file:
        assert file["sp|P2|B_HUMAN"].shape == (4, 32)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--format", "fasta", "--resume"), "--resume is not available for FASTA files"),
        (("--format", "fasta", "--carry-state"), "--carry-state is not available for FASTA files"),
        (("q.fasta", "--format", "fasta"), "--format fasta takes one file, without --engine ray"),
        (
            ("--format", "fasta", "--engine", "ray"),
            "--format fasta takes one file, without --engine ray",
        ),
        (("--format", "fasta", "--id-field", 5), "p.fasta, line 1: no field 5"),
        (("--format", "fasta", "--tokenizer", "moses"), "tokenizer is for text"),
        (("--per-protein",), "are for FASTA files: add --format fasta"),
        (("--id-field", 1), "are for FASTA files: add --format fasta"),
    ],
)
def test_command_rejects_invalid_options(run, folder: Path, args: tuple, message: str) -> None:
    assert_rejected(run("embed", "p.fasta", "-m", "model", "-o", "v.h5", *args), message)
    assert not Path("v.h5").exists()


def test_command_needs_a_model_of_proteins(run, folder: Path) -> None:
    assert_rejected(run("embed", "p.fasta", "-o", "v.h5", "--format", "fasta"), "no model;")


def test_sum_of_the_layers_of_a_text(run, folder: Path) -> None:
    Path("text.txt").write_text("The bank.\n")
    assert run("embed", "text.txt", "-m", "model", "-o", "v.npz", "--layers", "sum").code == 0
    [expected] = elmore.load("model").embed(["The bank."], layers="sum")
    with np.load("v.npz") as file:
        np.testing.assert_array_equal(file["0"], expected)
