"""Vectors of FASTA files. Oracles: the embedder on lists of residues, and NumPy."""

import gzip
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import elmore
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.inference import long

PROTEINS = {
    "P1": "MKVLAAGIVTLLSACSSDKTEEQIRALA",
    "P2": "MSEQWENCE",
    "P3": "M",
    "P4": "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFKDLGEENFKALVLIAF",
}
FASTA = "".join(f">sp|{key}|NAME text\n{seq[:20]}\n{seq[20:]}\n" for key, seq in PROTEINS.items())


@pytest.fixture
def fasta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.fasta"
    path.write_text(FASTA)
    return path


@pytest.mark.parametrize("layers", ["sum", "all", "top", "average", 0])
@pytest.mark.parametrize("per_protein", [False, True])
def test_vectors_equal_those_of_the_embedder(
    embedder: Embedder, fasta: Path, layers: str | int, per_protein: bool
) -> None:
    result = elmore.embed_fasta(
        fasta, "v.h5", embedder, layers=layers, per_protein=per_protein, id_field=1
    )  # type: ignore[call-overload]
    assert result[:3] == (Path("v.h5"), 4, sum(map(len, PROTEINS.values())))
    with h5py.File("v.h5") as file:
        assert {*file} == {*PROTEINS}
        for key, sequence in PROTEINS.items():
            [expected] = embedder.embed([list(sequence)])
            if layers != "all":
                pick = {"sum": expected.sum(0), "average": expected.mean(0), "top": expected[2]}
                expected = pick[layers] if isinstance(layers, str) else expected[layers]
            if per_protein:
                expected = expected.mean(axis=-2)
            assert file[key].dtype == np.float32
            np.testing.assert_allclose(file[key][...], expected, rtol=0, atol=2e-6)


def test_formats_have_the_same_vectors(embedder: Embedder, fasta: Path) -> None:
    for name in ("v.hdf5", "v.npz", "v.npy"):
        elmore.embed_fasta(fasta, name, embedder, per_protein=True, id_field=1, dtype="float16")
    with h5py.File("v.hdf5") as file, np.load("v.npz") as archive:
        rows, keys = np.load("v.npy"), json.loads(Path("v.json").read_text())
        assert keys == list(PROTEINS)  # in the order of the FASTA file
        assert rows.dtype == np.float16
        for key, row in zip(keys, rows, strict=True):
            np.testing.assert_array_equal(file[key][...], row, strict=True)
            np.testing.assert_array_equal(archive[key], row, strict=True)


def test_long_proteins_are_not_truncated(
    embedder: Embedder, fasta: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = "MKVLAAGIVT" * 30
    fasta.write_text(f">long\n{sequence}\n" + FASTA)
    monkeypatch.setattr(long, "LONG", 100)
    monkeypatch.setattr(long, "_CHUNK", 64)
    monkeypatch.setattr("elmore.vectors.embed_fasta._BATCH_RESIDUES", {"cpu": 90})
    elmore.embed_fasta(fasta, "v.npz", embedder, layers="all")
    monkeypatch.undo()
    [expected] = embedder.embed([list(sequence)])
    with np.load(fasta.with_name("v.npz")) as file:
        assert file["long"].shape == (3, 300, 32)
        np.testing.assert_allclose(file["long"], expected, rtol=0, atol=2e-6)
        np.testing.assert_allclose(
            file["sp|P2|NAME"], embedder.embed([list(PROTEINS["P2"])])[0], rtol=0, atol=2e-6
        )


def test_models_are_loaded_from_files_and_progress_is_shown(
    embedder: Embedder, fasta: Path
) -> None:
    embedder.save("model")
    compressed = Path("p.fasta.gz")
    compressed.write_bytes(gzip.compress(FASTA.lower().encode()))
    seen = []

    def progress(items, what):
        for item in items:
            seen.append((item[0], what))
            yield item

    elmore.embed_fasta(compressed, "v.h5", "model", id_field=-1, device="cpu", progress=progress)
    assert len(seen) == 4
    assert seen[0] == ("sp|p4|name text", "proteins embedded")  # the longest first
    with h5py.File("v.h5") as file:
        [expected] = embedder.embed([list(PROTEINS["P1"])], layers="sum")
        np.testing.assert_allclose(file["sp|p1|name text"][...], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "v.parquet"}, r"v\.parquet: expected a name that ends in \.h5"),
        ({"output": "v.npy"}, "Use the per_protein option"),
        ({"output": "p.fasta"}, "expected a name that ends in"),
        ({"id_field": 3}, r"p\.fasta, line 1: no field 3"),
        ({"id_field": -2}, "id_field must be a number from 0"),
        ({"split_char": ""}, "split_char is empty"),
        ({"layers": "both"}, "layers must be all, top, average, sum"),
        ({"dtype": "int8"}, "dtype must be float32 or float16"),
        ({"tokenizer": "moses"}, "tokenizer is for text"),
        ({"device": "cpu"}, "an Embedder is loaded already; pass device to load"),
        ({"fasta": "."}, "is a directory; expected a FASTA file"),
        ({"model": None}, "no model; FASTA files need one that was trained on proteins"),
        ({"fasta": "slash.fasta"}, r"slash\.fasta, line 3: HDF5 reserves '/'"),
        ({"fasta": "gap.fasta"}, r"gap\.fasta, line 4: '-' is not a residue"),
    ],
)
def test_invalid_arguments_are_rejected(
    embedder: Embedder, fasta: Path, arguments: dict, message: str
) -> None:
    Path("slash.fasta").write_text(">a\nMK\n>b/c\nMK\n")
    Path("gap.fasta").write_text(">a\nMK\n>b\nM-K\n")
    before = {*Path().iterdir()}
    with pytest.raises(InputError, match=message):
        elmore.embed_fasta(**{"fasta": fasta, "output": "v.h5", "model": embedder} | arguments)
    assert {*Path().iterdir()} == before
    with pytest.raises(TypeError, match="expected the path of a FASTA file, got list"):
        elmore.embed_fasta(["MKV"], "v.h5", embedder)  # type: ignore[arg-type]


def test_invalid_residues_are_replaced_with_the_option(embedder: Embedder, fasta: Path) -> None:
    fasta.write_text(">a\nM-KV*\n")
    elmore.embed_fasta(fasta, "v.h5", embedder, replace_invalid=True)
    [expected] = embedder.embed([list("MXKVX")], layers="sum")
    with h5py.File("v.h5") as file:
        np.testing.assert_array_equal(file["a"][...], expected)
