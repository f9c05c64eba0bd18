"""Model directories. Oracles: the model before it was saved; the safetensors library."""

import json
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.checkpoint.build import build
from elmore.checkpoint.directory import (
    read_config,
    read_directory,
    read_softmax,
    write_directory,
)
from elmore.checkpoint.language_model import read_language_model
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.characters import encode_sentences
from elmore.text.vocabulary import Vocabulary

BATCH = encode_sentences([["He", "sat", "by", "the", "bank"], ["Banks", "fail"]])


def edit_config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    config = json.loads(file.read_text())
    config["bilm"] |= changes
    del config["settings_hash"]
    file.write_text(json.dumps(config))


@pytest.fixture
def directory(bilm: BiLM, tmp_path: Path) -> Path:
    write_directory(bilm, tmp_path / "model", provenance={"text": "made up"})
    return tmp_path / "model"


def test_loaded_model_equals_the_saved_one(bilm: BiLM, directory: Path) -> None:
    loaded = read_directory(directory)
    assert loaded.config == bilm.config
    assert not loaded.training
    assert torch.equal(loaded(*BATCH).layers, bilm(*BATCH).layers)
    assert read_config(directory)["provenance"] == {"text": "made up"}
    assert {path.name for path in directory.parent.iterdir()} == {"model"}


def test_loaded_config_equals_the_saved_one(tmp_path: Path) -> None:
    config = BiLMConfig(
        max_characters=12, char_dim=3, filters=((1, 2), (4, 6)), activation="tanh",
        num_highways=0, project_filters=False, dim=8, cell_dim=8, project_cells=False,
        num_layers=3, residual=False, cell_clip=None, projection_clip=2.5, dropout=0.0,
    )  # fmt: skip
    write_directory(BiLM(config), tmp_path / "m")
    assert read_directory(tmp_path / "m").config == config


def test_float16_file_has_half_the_size_and_is_loaded_as_float32(
    bilm: BiLM, directory: Path, tmp_path: Path
) -> None:
    write_directory(bilm, tmp_path / "half", dtype="float16")
    half = read_directory(tmp_path / "half")
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    torch.testing.assert_close(half(*BATCH).layers, bilm(*BATCH).layers, rtol=0, atol=5e-3)
    sizes = [(f / "model.safetensors").stat().st_size for f in (tmp_path / "half", directory)]
    assert sizes[0] < 0.6 * sizes[1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda s: s.pop("encode.embed.weight"),
            r"does not match its configuration; missing weights \(1\): encode.embed.weight",
        ),
        (lambda s: s.update(spare=torch.zeros(1)), r"unexpected weights \(1\): spare"),
        (
            lambda s: s.update({"encode.project.bias": torch.zeros(3)}),
            r"encode.project.bias has shape \(3,\); its configuration requires \(16,\)",
        ),
    ],
)
def test_mismatched_weights_are_rejected(directory: Path, edit, message: str) -> None:
    state = load_file(directory / "model.safetensors")
    edit(state)
    save_file(state, directory / "model.safetensors")
    with pytest.raises(InputError, match=message):
        read_directory(directory)


@pytest.mark.parametrize("keep", [0, 7, 1000])
def test_truncated_file_is_rejected(directory: Path, keep: int) -> None:
    intact = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(intact[:keep])
    with pytest.raises(InputError, match="not a complete safetensors file"):
        read_directory(directory)


def test_missing_weight_file_is_rejected(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"contains no model.safetensors"):
        read_directory(directory)


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
        ({"num_layers": 3}, r"missing weights \(8\)"),
        ({"num_layers": 1}, r"unexpected weights \(8\)"),
    ],
)
def test_invalid_config_is_rejected(directory: Path, changes: dict, message: str) -> None:
    edit_config(directory, **changes)
    with pytest.raises(InputError, match=message):
        read_directory(directory)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}'])
def test_config_of_another_program_is_rejected(directory: Path, text: str) -> None:
    (directory / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"is not (a )?JSON|does not describe a biLM"):
        read_directory(directory)


def test_failed_save_keeps_the_previous_model(
    bilm: BiLM, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = (directory / "model.safetensors").read_bytes()
    monkeypatch.setattr("elmore.checkpoint.directory.save_file", disk_full)
    for name in ("model", "new"):
        with pytest.raises(OSError, match="No space left"):
            Embedder(bilm, device="cpu").save(directory.with_name(name), overwrite=True)
    assert (directory / "model.safetensors").read_bytes() == before
    assert [p.name for p in directory.parent.iterdir()] == ["model"]


def test_weights_are_sharded(bilm: BiLM, tmp_path: Path) -> None:
    write_directory(bilm, tmp_path / "m", max_file_bytes=4_000)
    files = sorted(path.name for path in (tmp_path / "m").glob("*.safetensors"))
    assert len(files) > 1
    assert files == [
        f"model-{i:05}-of-{len(files):05}.safetensors" for i in range(1, len(files) + 1)
    ]
    shards = [load_file(tmp_path / "m" / name) for name in files]
    # Only a shard with a single tensor may exceed the limit.
    assert all(len(s) == 1 or sum(t.nbytes for t in s.values()) <= 4_000 for s in shards)
    assert torch.equal(read_directory(tmp_path / "m")(*BATCH).layers, bilm(*BATCH).layers)
    (tmp_path / "m" / files[0]).unlink()
    with pytest.raises(InputError, match="missing weights"):
        read_directory(tmp_path / "m")


def test_int8_softmax_is_restored_within_the_rounding_error(bilm: BiLM, tmp_path: Path) -> None:
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "bank", "river"])
    softmax = Softmax(dim=bilm.config.dim, vocab_size=5)
    with torch.no_grad():
        softmax.weight[3] *= 100  # rows have separate scales
        softmax.weight[4] = 0
        softmax.bias.copy_(torch.arange(5.0))
    write_directory(
        bilm, tmp_path / "m", vocabulary=vocabulary, softmax=softmax, softmax_dtype="int8"
    )
    stored = load_file(tmp_path / "m" / "softmax.safetensors")
    assert stored["weight"].dtype == torch.int8
    loaded = read_softmax(tmp_path / "m", 5, bilm.config.dim)
    largest = softmax.weight.abs().amax(dim=1)
    # The rounding error is at most half of the row's scale, which is largest / 127.
    assert torch.all((loaded.weight - softmax.weight).abs().amax(dim=1) <= largest / 253)
    assert torch.equal(loaded.bias, softmax.bias)


@pytest.fixture
def split_softmax(bilm: BiLM, tmp_path: Path) -> tuple[Path, Softmax]:
    """An int8 model whose softmax has 10 rows in files of up to 4 rows."""
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", *"abcdefg"])
    softmax = Softmax(dim=bilm.config.dim, vocab_size=10)
    with torch.no_grad():
        softmax.bias.copy_(torch.arange(10.0))
    write_directory(
        bilm,
        tmp_path / "split",
        vocabulary=vocabulary,
        softmax=softmax,
        dtype="int8",
        max_file_bytes=4 * (bilm.config.dim + 8),  # int8 weights, a scale and a bias per row
    )
    return tmp_path / "split", softmax


def test_split_softmax_is_restored(split_softmax: tuple[Path, Softmax], tmp_path: Path) -> None:
    """Oracle: the same softmax in one file."""
    folder, softmax = split_softmax
    files = sorted(folder.glob("softmax*"))
    expected = [f"softmax-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert [file.name for file in files] == expected
    assert all(len(load_file(file)["weight"]) <= 4 for file in files)
    model, vocabulary, *_ = read_language_model(folder)
    write_directory(
        model.bilm, tmp_path / "one", vocabulary=vocabulary, softmax=softmax, dtype="int8"
    )
    loaded = read_language_model(tmp_path / "one").model.softmax
    assert torch.equal(model.softmax.weight, loaded.weight)
    assert torch.equal(model.softmax.bias, softmax.bias)
    hashes = [read_config(path)["softmax_hash"] for path in (folder, tmp_path / "one")]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Path.unlink, r"has shape \(7,.*its configuration requires \(10,"),
        (lambda file: shutil.copy(str(file).replace("00002-of", "00003-of"), file), "is damaged"),
        (lambda file: save_file({"bias": torch.ones(3, 2)}, file), "differs in type or shape"),
    ],
    ids=["missing", "wrong rows", "wrong shape"],
)
def test_damaged_split_softmax_is_rejected(
    split_softmax: tuple[Path, Softmax], edit: Callable[[Path], object], message: str
) -> None:
    folder, _ = split_softmax
    edit(folder / "softmax-00002-of-00003.safetensors")
    with pytest.raises(InputError, match=message):
        read_language_model(folder)


@pytest.fixture
def quantized(bilm: BiLM, tmp_path: Path) -> Path:
    with torch.no_grad():
        bilm.forward_lstms[0].input.weight[3] *= 100  # rows have separate scales
        bilm.forward_lstms[0].input.weight[4] = 0
    write_directory(bilm, tmp_path / "int8", dtype="int8", max_file_bytes=4_000)
    return tmp_path / "int8"


def test_int8_matrices_are_restored_within_half_a_scale(bilm: BiLM, quantized: Path) -> None:
    stored = {k: v for f in quantized.glob("*.safetensors") for k, v in load_file(f).items()}
    loaded = read_directory(quantized).state_dict()
    for name, expected in bilm.state_dict().items():
        assert loaded[name].dtype == torch.float32
        if expected.ndim != 2:
            assert torch.equal(loaded[name], expected), name
            continue
        assert stored[name].dtype == torch.int8
        # Rounding is off by up to half a scale, and float32 rounds the product by far less.
        scale = expected.abs().amax(dim=1) / 127
        error = (loaded[name] - expected).abs().amax(dim=1)
        assert torch.all(error <= 0.5001 * scale), name
    assert not loaded["forward_lstms.0.input.weight"][4].any()


def test_int8_weights_keep_their_hash_in_other_types_and_if_quantized_again(
    quantized: Path, tmp_path: Path
) -> None:
    expected = read_config(quantized)["weights_hash"]
    write_directory(read_directory(quantized), tmp_path / "float32")
    assert read_config(tmp_path / "float32")["weights_hash"] == expected
    write_directory(read_directory(tmp_path / "float32"), tmp_path / "again", dtype="int8")
    assert read_config(tmp_path / "again")["weights_hash"] == expected


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s["forward_lstms.0.project.weight"][2].add_(1), "is damaged: its weights"),
        (lambda s: s["forward_lstms.0.project.weight_scale"][2].mul_(2), "is damaged"),
        (lambda s: s["forward_lstms.0.project.weight_scale"][2].mul_(torch.inf), "infinite"),
        (lambda s: s.pop("forward_lstms.0.project.weight_scale"), "has type torch.int8"),
        (
            lambda s: s.update({"forward_lstms.0.project.weight_scale": torch.ones(1)}),
            r"0.project.weight has shape .* scales of shape \(1,\); expected a matrix",
        ),
        (lambda s: s.update(spare_scale=torch.ones(1)), r"unexpected weights \(1\): spare_scale"),
    ],
)
def test_damaged_int8_weights_are_rejected(
    bilm: BiLM, tmp_path: Path, edit: Callable[[dict], object], message: str
) -> None:
    write_directory(bilm, tmp_path / "m", dtype="int8")
    file = tmp_path / "m" / "model.safetensors"
    state = load_file(file)
    edit(state)
    save_file(state, file)
    with pytest.raises(InputError, match=message):
        read_directory(tmp_path / "m")


def test_build_keeps_no_reference_to_its_input(bilm: BiLM) -> None:
    """Oracle: weak references to the tensors yielded so far."""
    yielded: list[weakref.ref[torch.Tensor]] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in bilm.state_dict().items():
            # Only the loop variable of `build` may still refer to the previous tensor.
            assert sum(ref() is not None for ref in yielded) <= 1
            copy = value.half()
            yielded.append(weakref.ref(copy))
            yield name, copy
            del copy

    build(lambda: BiLM(bilm.config), weights(), "memory")
    assert not any(ref() for ref in yielded)


def test_folder_whose_name_is_not_utf8_is_refused(bilm: BiLM, tmp_path: Path) -> None:
    """The file system may allow such a name, but safetensors does not."""
    write_directory(bilm, tmp_path / "m")
    try:
        renamed = (tmp_path / "m").rename(tmp_path / "m\udcff")
    except OSError:
        pytest.skip("the file system does not allow this name")
    with pytest.raises(InputError, match=r"m\\udcff' is not UTF-8. Rename the folder"):
        read_directory(renamed)
