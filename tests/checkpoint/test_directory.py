"""Oracles: the model that was written; safetensors itself."""

import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.assign import build
from elmore.checkpoint.directory import (
    read_config,
    read_directory,
    read_softmax,
    write_directory,
)
from elmore.errors import InputError
from elmore.text.characters import encode_sentences
from elmore.text.vocabulary import Vocabulary

BATCH = encode_sentences([["He", "sat", "by", "the", "bank"], ["Banks", "fail"]])


def edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config["bilm"] |= changes
    file.write_text(json.dumps(config))


@pytest.fixture
def folder(bilm: BiLM, tmp_path: Path) -> Path:
    write_directory(bilm, tmp_path / "model", provenance={"text": "made up"})
    return tmp_path / "model"


def test_what_is_read_is_what_was_written(bilm: BiLM, folder: Path) -> None:
    found = read_directory(folder)
    assert found.config == bilm.config
    assert not found.training
    assert torch.equal(found(*BATCH).layers, bilm(*BATCH).layers)
    assert read_config(folder)["provenance"] == {"text": "made up"}
    assert {path.name for path in folder.parent.iterdir()} == {"model"}


def test_every_setting_survives(tmp_path: Path) -> None:
    config = BiLMConfig(
        max_characters=12, char_dim=3, filters=((1, 2), (4, 6)), activation="tanh",
        num_highways=0, project_filters=False, dim=8, cell_dim=8, project_cells=False,
        num_layers=3, residual=False, cell_clip=None, projection_clip=2.5, dropout=0.0,
    )  # fmt: skip
    write_directory(BiLM(config), tmp_path / "m")
    assert read_directory(tmp_path / "m").config == config


def test_half_precision_halves_the_file_and_is_read_as_float32(
    bilm: BiLM, folder: Path, tmp_path: Path
) -> None:
    write_directory(bilm, tmp_path / "half", dtype="float16")
    half = read_directory(tmp_path / "half")
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    torch.testing.assert_close(half(*BATCH).layers, bilm(*BATCH).layers, rtol=0, atol=5e-3)
    sizes = [(f / "model.safetensors").stat().st_size for f in (tmp_path / "half", folder)]
    assert sizes[0] < 0.6 * sizes[1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s.pop("encode.embed.weight"), "lacks 1 weights: encode.embed.weight"),
        (lambda s: s.update(spare=torch.zeros(1)), r"beyond what the configuration .* spare"),
        (
            lambda s: s.update({"encode.project.bias": torch.zeros(3)}),
            r"encode.project.bias has shape \(3,\), the configuration asks for \(16,\)",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(folder: Path, edit, message: str) -> None:
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors")
    with pytest.raises(InputError, match=message):
        read_directory(folder)


@pytest.mark.parametrize("keep", [0, 7, 1000])
def test_a_truncated_file_is_named(folder: Path, keep: int) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:keep])
    with pytest.raises(InputError, match="not a complete safetensors file"):
        read_directory(folder)


def test_missing_weights_are_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"holds no model.safetensors"):
        read_directory(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"celldim": 3}, "unknown setting 'celldim'; did you mean 'cell_dim'"),
        ({"cell_dim": "many"}, "cell_dim: expected int, got 'many'"),
        ({"cell_dim": 32.5}, "cell_dim: expected int, got 32.5"),
        ({"cell_dim": True}, "cell_dim: expected int, got True"),
        ({"residual": 1}, "residual: expected bool, got 1"),
        ({"activation": "gelu"}, "activation: expected 'relu' or 'tanh', got 'gelu'"),
        ({"filters": [[1, 2, 3]]}, "filters: expected"),
        ({"filters": 7}, "filters: expected"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"cell_dim": 64}, "has shape"),
        ({"num_layers": 3}, "lacks 8 weights"),
        ({"num_layers": 1}, "beyond what the configuration describes"),
    ],
)
def test_wrong_configs_are_named(folder: Path, changes: dict, message: str) -> None:
    edit_config(folder, **changes)
    with pytest.raises(InputError, match=message):
        read_directory(folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}'])
def test_a_config_of_something_else_is_named(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"is not JSON|does not describe a biLM"):
        read_directory(folder)


def test_nothing_is_left_when_writing_fails(
    bilm: BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elmore.checkpoint.directory.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_directory(bilm, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_replaced_whole(bilm: BiLM, folder: Path) -> None:
    (folder / "old.txt").write_text("old")
    write_directory(bilm, folder)
    assert {p.name for p in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_weights_in_several_files(bilm: BiLM, tmp_path: Path) -> None:
    write_directory(bilm, tmp_path / "m", max_file_bytes=4_000)
    files = sorted(path.name for path in (tmp_path / "m").glob("*.safetensors"))
    assert len(files) > 1
    assert files == [
        f"model-{i:05}-of-{len(files):05}.safetensors" for i in range(1, len(files) + 1)
    ]
    parts = [load_file(tmp_path / "m" / name) for name in files]
    # No part is larger than asked, unless it is a single tensor.
    assert all(len(p) == 1 or sum(t.nbytes for t in p.values()) <= 4_000 for p in parts)
    assert torch.equal(read_directory(tmp_path / "m")(*BATCH).layers, bilm(*BATCH).layers)
    (tmp_path / "m" / files[0]).unlink()
    with pytest.raises(InputError, match=f"should hold {len(files)} files of weights"):
        read_directory(tmp_path / "m")


def test_a_softmax_in_whole_numbers(bilm: BiLM, tmp_path: Path) -> None:
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "bank", "river"])
    softmax = Softmax(dim=bilm.config.dim, vocab_size=5)
    with torch.no_grad():
        softmax.weight[3] *= 100  # rows of any size are kept to the same number of digits
        softmax.weight[4] = 0
        softmax.bias.copy_(torch.arange(5.0))
    write_directory(
        bilm, tmp_path / "m", vocabulary=vocabulary, softmax=softmax, softmax_dtype="int8"
    )
    stored = load_file(tmp_path / "m" / "softmax.safetensors")
    assert stored["weight"].dtype == torch.int8
    found = read_softmax(tmp_path / "m", vocabulary, bilm.config.dim)
    largest = softmax.weight.abs().amax(dim=1)
    # Half a step of 127 is the most that rounding can cost.
    assert torch.all((found.weight - softmax.weight).abs().amax(dim=1) <= largest / 253)
    assert torch.equal(found.bias, softmax.bias)


def test_weights_are_read_one_by_one(bilm: BiLM) -> None:
    """Oracle: weak references to what was handed over before."""
    before: list[weakref.ref[torch.Tensor]] = []

    def one_by_one() -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in bilm.state_dict().items():
            assert sum(ref() is not None for ref in before) <= 1  # the caller's loop has the last
            given = value.half()
            before.append(weakref.ref(given))
            yield name, given
            del given

    build(bilm.config, one_by_one(), "memory")
    assert not any(ref() for ref in before)
