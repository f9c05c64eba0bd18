"""Damaged and hostile model files. Oracle: the vectors of the model before the damage."""

import gzip
import io
import json
import os
import random
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.hash import hash_weights
from elmore.checkpoint.hdf5 import write_hdf5
from elmore.checkpoint.pretrained import read_pretrained
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.characters import encode_sentences
from elmore.text.vocabulary import Vocabulary

BATCH = encode_sentences([["He", "sat", "by", "the", "bank"]])
WEIGHT = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"


@pytest.fixture
def folder(bilm: BiLM, tmp_path: Path) -> Path:
    write_directory(bilm, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def weights(bilm: BiLM, tmp_path: Path) -> Path:
    write_hdf5(bilm, tmp_path / "hdf5" / "weights.hdf5", tmp_path / "hdf5" / "options.json")
    return tmp_path / "hdf5" / "weights.hdf5"


def edit_json(file: Path, edit: Callable[[dict], object]) -> None:
    values = json.loads(file.read_text())
    edit(values)
    file.write_text(json.dumps(values))


def refused(path: Path, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pretrained(path)


# --- damage


@pytest.mark.parametrize("kind", ["safetensors", "hdf5", "tar.gz", "zip"])
def test_a_flipped_bit_never_changes_the_vectors(
    bilm: BiLM, folder: Path, weights: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "safetensors":
        model, file = folder, folder / "model.safetensors"
    elif kind == "hdf5":
        model = file = weights
        expected_model = read_pretrained(weights).bilm
    else:
        name = shutil.make_archive(
            str(tmp_path / "model"), "zip" if kind == "zip" else "gztar", folder
        )
        model = file = Path(name)
    expected = (expected_model if kind == "hdf5" else bilm)(*BATCH).layers
    original, rng, refusals = file.read_bytes(), random.Random(0), 0
    for _ in range(60):
        damaged = bytearray(original)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        try:
            loaded = read_pretrained(model).bilm
        except InputError:
            refusals += 1
        else:
            torch.testing.assert_close(loaded(*BATCH).layers, expected, rtol=0, atol=0)
    assert refusals > 20  # other bits are padding, names or dates


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(bilm: BiLM, tmp_path: Path, value: float) -> None:
    with torch.no_grad():
        bilm.forward_lstms[1].recurrent.weight[2, 3] = value
    write_directory(bilm, tmp_path / "model")
    write_hdf5(bilm, tmp_path / "hdf5" / "weights.hdf5", tmp_path / "hdf5" / "options.json")
    archive = shutil.make_archive(str(tmp_path / "model"), "gztar", tmp_path / "model")
    for path in (tmp_path / "model", tmp_path / "hdf5", Path(archive)):
        refused(path, r"forward_lstms.1.recurrent.weight has values that are NaN or infinite")


def test_a_damaged_softmax_is_refused(bilm: BiLM, tmp_path: Path) -> None:
    words = Vocabulary(["<S>", "</S>", "<UNK>", "bank"])
    softmax = Softmax(dim=bilm.config.dim, vocab_size=4)
    for dtype in ("float32", "int8"):
        model = tmp_path / dtype
        write_directory(bilm, model, vocabulary=words, softmax=softmax, softmax_dtype=dtype)
        read_pretrained(model, with_softmax=True)
        stored = load_file(model / "softmax.safetensors")
        stored["weight"][1, 2] += 1
        save_file(stored, model / "softmax.safetensors")
        with pytest.raises(InputError, match=r"softmax.safetensors is damaged"):
            read_pretrained(model, with_softmax=True)


@pytest.mark.parametrize("kind", ["config.json", "options.json"])
def test_changed_settings_are_refused(
    tmp_path: Path, folder: Path, weights: Path, kind: str
) -> None:
    """Changes every digit and every letter of values that weights fit just as well."""
    file = folder / kind if kind == "config.json" else weights.with_name(kind)
    expected = read_pretrained(file.parent).bilm.config
    original = file.read_text()
    end = original.find('"provenance"')
    refusals = 0
    for place in range(len(original) if end < 0 else end):
        if original[place].isalnum():
            changed = "4" if original[place].isdigit() else "x"
            file.write_text(original[:place] + changed + original[place + 1 :])
            try:
                assert read_pretrained(file.parent).bilm.config == expected
            except InputError as error:
                refusals += "is damaged: its settings differ from those" in str(error)
    assert refusals > 3
    file.write_text(original.replace("3.0", "2.5"))
    refused(file.parent, rf"{kind} is damaged: .* If you changed them yourself, delete")
    key = "settings_hash" if kind == "config.json" else "elmore_options_hash"
    edit_json(file, lambda settings: settings.pop(key))
    assert read_pretrained(file.parent).bilm.config.cell_clip == 2.5


def test_a_changed_vocabulary_is_refused(bilm: BiLM, tmp_path: Path) -> None:
    words = Vocabulary(["<S>", "</S>", "<UNK>", "bank"])
    softmax = Softmax(dim=bilm.config.dim, vocab_size=4)
    write_directory(bilm, tmp_path / "lm", vocabulary=words, softmax=softmax)
    reader = BiLM(replace(BiLMConfig.tiny(), vocab_size=4))
    write_directory(reader, tmp_path / "words", vocabulary=words)
    write_hdf5(
        reader, tmp_path / "hdf5" / "w.hdf5", tmp_path / "hdf5" / "options.json", vocabulary=words
    )
    for name in ("lm", "words", "hdf5"):
        file = tmp_path / name / "vocab.txt"
        text = file.read_text()
        file.write_bytes(text.replace("\n", "\r\n").encode())  # other line ends do no harm
        read_pretrained(tmp_path / name, with_softmax=True)
        file.write_text(text.replace("bank", "tank"))
        with pytest.raises(InputError, match=r"vocab.txt is damaged, or the vocabulary of another"):
            read_pretrained(tmp_path / name, with_softmax=True)


def test_models_without_a_hash_are_loaded(folder: Path, weights: Path) -> None:
    """As written by earlier versions and by other programs."""
    edit_json(folder / "config.json", lambda config: config.pop("weights_hash"))
    edit_json(folder / "config.json", lambda config: config.pop("settings_hash"))
    edit_json(weights.with_name("options.json"), lambda o: o.pop("elmore_options_hash"))
    with h5py.File(weights, "r+") as file:
        del file.attrs["elmore_weights_hash"]
    read_pretrained(folder)
    read_pretrained(weights)


# --- the hash


def test_the_hash_depends_only_on_the_values(bilm: BiLM, folder: Path, tmp_path: Path) -> None:
    expected = hash_weights(bilm.state_dict())
    write_directory(bilm, tmp_path / "split", max_file_bytes=4_000)
    write_directory(bilm.half(), tmp_path / "half", dtype="float16")
    rounded = hash_weights(bilm.state_dict())
    assert rounded != expected
    write_directory(bilm.float(), tmp_path / "full")
    assert [read_pretrained(tmp_path / m).weights_hash for m in ("model", "split")] == [
        expected
    ] * 2
    assert [read_pretrained(tmp_path / m).weights_hash for m in ("half", "full")] == [rounded] * 2


def test_the_hash_covers_names_shapes_and_values() -> None:
    states = [
        {"a": torch.zeros(2, 3), "b": torch.ones(2, 3)},
        {"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)},
        {"b": torch.zeros(2, 3), "a": torch.ones(2, 3)},
        {"a": torch.zeros(3, 2), "b": torch.ones(2, 3)},
        {"a": torch.zeros(2, 3)},
    ]
    assert len({hash_weights(state) for state in states}) == 5
    assert hash_weights(states[0]) == hash_weights(dict(reversed(states[0].items())))
    assert hash_weights({"a": torch.arange(6.0).view(2, 3).T}) == hash_weights(
        {"a": torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])}
    )


def test_an_embedder_has_the_hash_of_its_weights(bilm: BiLM, folder: Path) -> None:
    embedder = Embedder(bilm, device="cpu")
    assert embedder.weights_hash == read_pretrained(folder).weights_hash
    with torch.no_grad():
        bilm.encode.project.bias += 1
    embedder.refresh()
    assert embedder.weights_hash == hash_weights(bilm.state_dict())


# --- hostile configurations


@pytest.mark.parametrize(
    "changes",
    [
        {"num_layers": 10**6},
        {"num_highways": 10**7},
        {"cell_dim": 10**12},
        {"dim": 2**63},
        {"char_dim": 10**9},
        {"max_characters": 10**9},
        {"vocab_size": 10**12},
        {"filters": [[1, 10**12]]},
        {"filters": [[1, 1]] * 10**4},
        {"cell_clip": float("nan")},
        {"projection_clip": float("inf")},
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_allocated(folder: Path, changes: dict) -> None:
    edit_json(folder / "config.json", lambda config: config["bilm"].update(changes))
    refused(folder, rf"{next(iter(changes))} must be")


@pytest.mark.parametrize(
    "edit",
    [
        lambda o: o["lstm"].update(n_layers=10**6),
        lambda o: o["lstm"].update(dim=float("inf")),
        lambda o: o["lstm"].update(dim=[]),
        lambda o: o["lstm"].update(projection_dim=float("nan")),
        lambda o: o["char_cnn"].update(n_highway=10**7),
        lambda o: o.update(char_cnn=[1]),
        lambda o: o.update(char_cnn="text"),
        lambda o: o["char_cnn"].update(filters=[[1]]),
        lambda o: o["char_cnn"].update(embedding=3),
    ],
)
def test_absurd_options_are_refused(weights: Path, edit: Callable[[dict], object]) -> None:
    edit_json(weights.with_name("options.json"), edit)
    refused(weights, r"options.json: ")


@pytest.mark.parametrize("text", ["[" * 10**5, '{"bilm": ' + "9" * 10**4 + "}", "\ud800", "[]"])
def test_absurd_json_is_refused(folder: Path, weights: Path, text: str) -> None:
    for file in (folder / "config.json", weights.with_name("options.json")):
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        refused(file.parent, r"is not (JSON|a JSON object)|does not describe")


def test_other_types_are_refused(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state["encode.project.bias"] = state["encode.project.bias"].to(torch.int32)
    save_file(state, folder / "model.safetensors")
    refused(folder, r"encode.project.bias has type torch.int32; expected floating point")
    edit_json(folder / "config.json", lambda config: config.update(provenance=[1]))
    refused(folder, "expected a table of facts under provenance")


# --- hostile HDF5


def scalar(file: h5py.File) -> None:
    file[WEIGHT] = np.float32(3)


def text(file: h5py.File) -> None:
    file[WEIGHT] = "weights"


def strings(file: h5py.File) -> None:
    file[WEIGHT] = np.full((32, 128), b"a")


def group(file: h5py.File) -> None:
    file.create_group(WEIGHT)


def link_loop(file: h5py.File) -> None:
    file[WEIGHT] = h5py.SoftLink("/" + WEIGHT)


def external_link(file: h5py.File) -> None:
    file[WEIGHT] = h5py.ExternalLink("other.hdf5", "/secret")


def external_group(file: h5py.File) -> None:
    del file["CNN"]
    file["CNN"] = h5py.ExternalLink("pipe", "/")


def external_storage(file: h5py.File) -> None:
    secret = Path(file.filename).with_name("secret.bin")
    secret.write_bytes(bytes(4 * 32 * 128))
    file.create_dataset(WEIGHT, (32, 128), "f4", external=[(str(secret), 0, 4 * 32 * 128)])


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((32, 128), "f4")
    layout[:] = h5py.VirtualSource("other.hdf5", "secret", (32, 128))
    file.create_virtual_dataset(WEIGHT, layout)


def never_written(file: h5py.File) -> None:
    file.create_dataset(WEIGHT, (32, 128), "f4")


def empty(file: h5py.File) -> None:
    file[WEIGHT] = h5py.Empty("f4")


@pytest.mark.parametrize(
    "replace",
    [
        scalar, text, strings, group, link_loop, external_link, external_group, external_storage,
        virtual, never_written, empty,
    ],
)  # fmt: skip
def test_hdf5_that_is_not_plain_arrays_is_refused(
    weights: Path, replace: Callable[[h5py.File], None]
) -> None:
    os.mkfifo(weights.with_name("pipe"))
    with h5py.File(weights.with_name("other.hdf5"), "w") as file:
        file["secret"] = np.zeros((32, 128), np.float32)
    shutil.move(weights.with_name("other.hdf5"), weights.with_name("other"))
    with h5py.File(weights, "r+") as file:
        del file[WEIGHT]
        replace(file)
    refused(weights, r"(expected ELMo weights|not a readable HDF5|Do the two files belong)")


def test_a_group_that_contains_itself_is_no_problem(weights: Path) -> None:
    with h5py.File(weights, "r+") as file:
        file["CNN/again"] = file["CNN"]
    read_pretrained(weights)


def test_hdf5_damaged_anywhere_is_refused_or_equal(weights: Path) -> None:
    """Blocks of random bytes, not single bits, which also hit B-trees and headers."""
    expected = read_pretrained(weights).bilm(*BATCH).layers
    original, rng = weights.read_bytes(), random.Random(1)
    for _ in range(60):
        damaged = bytearray(original)
        place = rng.randrange(len(damaged)) if rng.random() < 0.5 else rng.randrange(8000)
        damaged[place : place + 64] = rng.randbytes(len(damaged[place : place + 64]))
        weights.write_bytes(damaged)
        try:
            loaded = read_pretrained(weights).bilm
        except InputError:
            continue
        torch.testing.assert_close(loaded(*BATCH).layers, expected, rtol=0, atol=0)


# --- hostile archives and named pipes


def test_archive_bombs_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2 * 10**8
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", bytes(size))
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("config.json")
        member.size = size
        tar.addfile(member, io.BytesIO(bytes(size)))
    # Behind the end of a sound archive.
    shutil.make_archive(str(tmp_path / "tail"), "tar", folder)
    with gzip.open(tmp_path / "tail.tar.gz", "wb") as file:
        file.write((tmp_path / "tail.tar").read_bytes() + bytes(size))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for name in ("bomb.zip", "bomb.tar.gz", "tail.tar.gz"):
        refused(tmp_path / name, r"times as large")
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("offset", "value", "message"), [(6, 1, "encrypted"), (8, 99, "compression method")]
)
def test_unreadable_zip_files_are_refused(
    folder: Path, tmp_path: Path, offset: int, value: int, message: str
) -> None:
    """Sets the flags or the method of the first member, in its local and its central header."""
    archive = Path(shutil.make_archive(str(tmp_path / "model"), "zip", folder))
    data = bytearray(archive.read_bytes())
    for signature, start in ((b"PK\x03\x04", offset), (b"PK\x01\x02", offset + 2)):
        place = -1
        while (place := data.find(signature, place + 1)) >= 0:
            struct.pack_into("<H", data, place + start, value)
    archive.write_bytes(data)
    refused(archive, f"is not a readable archive .*{message}")


def test_a_file_of_many_tensors_is_refused_without_reading_them(folder: Path) -> None:
    save_file({f"{i}": torch.zeros(0) for i in range(20_000)}, folder / "model.safetensors")
    refused(folder, "has 20,000 tensors; no model has that many")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all files")
def test_missing_read_permission_is_reported(folder: Path) -> None:
    (folder / "model.safetensors").chmod(0)
    with pytest.raises(PermissionError):
        read_pretrained(folder)


def test_named_pipes_are_refused_without_waiting(
    folder: Path, weights: Path, tmp_path: Path
) -> None:
    files = [folder / "config.json", folder / "model.safetensors", weights]
    for file in [*files, weights.with_name("options.json")]:
        file.rename(tmp_path / "kept")
        os.mkfifo(file)
        refused(file.parent, "no such file|contains no model|no options.json")
        file.unlink()
        (tmp_path / "kept").rename(file)
    shutil.copy(folder / "model.safetensors", folder / "softmax.safetensors")
    os.mkfifo(folder / "vocab.txt")
    with pytest.raises(InputError, match=r"vocab.txt: no such file; expected the vocabulary"):
        read_pretrained(folder, with_softmax=True)
    os.mkfifo(tmp_path / "pipe.hdf5")
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(InputError, match="no such file"):
        read_pretrained(tmp_path / "pipe.hdf5", options=weights.with_name("options.json"))
    with pytest.raises(InputError, match="no such file"):
        read_pretrained(tmp_path / "pipe.zip", options=weights.with_name("options.json"))
