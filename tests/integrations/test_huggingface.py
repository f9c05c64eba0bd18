"""transformers. Oracles: `Embedder` on the same files; the plain biLM; a stand-in for the Hub."""

import copy
import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    DataCollatorWithPadding,
    pipeline,
)

import elmore
from elmore.embedder import default_batch_words
from elmore.errors import InputError, MissingExtraError
from elmore.integrations.huggingface import ElmoConfig, ElmoModel, ElmoTokenizer
from tests.integrations.hub import Files, Hub
from tests.oracles.releases import VARIANTS, write_release

TEXTS = ["He sat by the bank.", "", "Banks fail"]
TOKENS = [["He", "sat", "by", "the", "bank", "."], [], ["Banks", "fail"]]


@pytest.fixture
def model(folder: Path) -> ElmoModel:
    return AutoModel.from_pretrained(folder)


@pytest.fixture
def tokenizer(folder: Path) -> ElmoTokenizer:
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.usefixtures("packed_or_plain")
def test_all_layers_equal_those_of_embed(folder: Path) -> None:
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    output = model(**tokenizer(TEXTS, padding=True, return_tensors="pt"), output_hidden_states=True)
    every = torch.stack(output.hidden_states, dim=1).numpy()
    for text, layers in zip(elmore.load(folder, device="cpu").embed(TEXTS), every, strict=True):
        words = text.shape[1]
        np.testing.assert_array_equal(layers[:, :words], text)
        assert not layers[:, words:].any()


@pytest.mark.parametrize("layers", ["average", "top", 0])
def test_last_hidden_state_is_the_selected_layer(
    folder: Path, tokenizer: ElmoTokenizer, layers: str | int
) -> None:
    model = AutoModel.from_pretrained(folder, layers=layers)
    [expected] = elmore.load(folder, device="cpu").embed(TEXTS[:1], layers=layers)
    actual = model(**tokenizer(TEXTS[:1], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_array_equal(actual.numpy(), expected)
    with pytest.raises(InputError, match="layer must be top, average or a number from 0 to 2"):
        AutoModel.from_pretrained(folder, layers="all")


def test_batches_of_any_size_are_equal_to_the_bit(
    folder: Path, model: ElmoModel, tokenizer: ElmoTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(elmore.embedder._BATCH_WORDS, "cpu", 40)
    elmo = elmore.load(folder, device="cpu")
    assert default_batch_words(elmo.config, elmo.device) == 40
    texts = [" ".join(f"word{n * k % 23}" for n in range(k % 17)) for k in range(60)]
    output = model(**tokenizer(texts, padding=True, return_tensors="pt")).last_hidden_state
    for expected, actual in zip(elmo.embed(texts, layers="average"), output, strict=True):
        np.testing.assert_array_equal(actual[: len(expected)].numpy(), expected)


def test_word_input_model_reads_its_vocabulary(tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", VARIANTS["word input"])
    vocab = release.weights_file.with_name("vocab.txt")
    elmo = elmore.load(release.weights_file, vocab=vocab, device="cpu", tokenizer="whitespace")
    elmo.save(tmp_path / "words")
    word = next(word for word in elmo.vocabulary if word.isalpha())
    model = AutoModel.from_pretrained(tmp_path / "words")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "words")
    text = f"{word} unknown {word}"
    output = model(**tokenizer([text], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_array_equal(output.numpy(), elmo.embed([text], layers="average")[0])
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "copy")
    assert elmore.load(tmp_path / "copy", device="cpu").weights_hash == elmo.weights_hash
    lines = (tmp_path / "words" / "vocab.txt").read_text().splitlines()
    (tmp_path / "words" / "vocab.txt").write_text("\n".join(reversed(lines)))
    for auto in (AutoModel, AutoTokenizer):
        with pytest.raises(InputError, match="is damaged, or the vocabulary of another model"):
            auto.from_pretrained(tmp_path / "words")


def test_bfloat16_equals_that_of_embed(folder: Path, tokenizer: ElmoTokenizer) -> None:
    [expected] = elmore.load(folder, device="cpu", precision="bf16").embed(TEXTS[:1], layers="top")
    model = AutoModel.from_pretrained(folder, layers="top", dtype=torch.bfloat16)
    actual = model(**tokenizer(TEXTS[:1], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_array_equal(actual.float().numpy(), expected)
    with pytest.raises(InputError, match="dtype must be float32 or bfloat16, got float16"):
        AutoModel.from_pretrained(folder, dtype="float16")


def test_pipeline_extracts_features(folder: Path) -> None:
    extract = pipeline("feature-extraction", model=str(folder), device="cpu")
    elmo = elmore.load(folder, device="cpu")
    for text, features in zip(TEXTS, extract(TEXTS), strict=True):
        [expected] = elmo.embed([text], layers="average")
        np.testing.assert_array_equal(
            np.array(features[0], dtype=np.float32).reshape(expected.shape), expected
        )


def test_missing_and_damaged_weights_are_rejected(folder: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    shard = sorted(copied.glob("*.safetensors"))[1]
    content = shard.read_bytes()
    shard.unlink()
    with pytest.raises(InputError, match=r"missing weights|expected floating point"):
        AutoModel.from_pretrained(copied)
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="is damaged"):
        AutoModel.from_pretrained(copied)
    config = json.loads((copied / "config.json").read_text())
    config["text"]["language"] = "de"
    (copied / "config.json").write_text(json.dumps(config))
    for auto in (AutoModel, AutoTokenizer):
        with pytest.raises(InputError, match="its settings differ"):
            auto.from_pretrained(copied)
    other = AutoConfig.from_pretrained(folder)
    other.bilm["num_layers"] = 1
    with pytest.raises(InputError, match="has other sizes than the configuration"):
        AutoModel.from_pretrained(folder, config=other)


def test_saved_model_is_read_by_both_libraries(
    folder: Path, model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    expected = elmore.load(folder, device="cpu")
    saved = tmp_path / "saved"
    shutil.copytree(folder, saved)  # its two files of weights are replaced by one
    model.config.layers = "top"
    for part in (tokenizer, model, tokenizer):
        part.save_pretrained(saved)
    elmo = elmore.load(saved, device="cpu")
    assert [file.name for file in saved.glob("*.safetensors")] == ["model.safetensors"]
    assert not [*saved.glob(".*")]
    assert elmo.weights_hash == expected.weights_hash
    assert (elmo.tokenizer, elmo.language) == ("moses", "en")
    again = AutoModel.from_pretrained(saved)
    batch = AutoTokenizer.from_pretrained(saved)(TEXTS[:1], return_tensors="pt")
    assert torch.equal(
        again(**batch).last_hidden_state[0],
        torch.from_numpy(expected.embed(TEXTS[:1], layers="top")[0]),
    )
    model.save_pretrained(tmp_path / "other process", is_main_process=False)
    assert not (tmp_path / "other process").exists()
    card = (saved / "README.md").read_text()
    assert "library_name: elmore\n" in card
    assert "pipeline_tag: feature-extraction\n" in card
    assert card.endswith("# Tiny\n\nA model for tests.\n")


def test_tokenizer_does_not_replace_another_model(
    folder: Path, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path / "alone")
    again = AutoTokenizer.from_pretrained(tmp_path / "alone")
    assert again(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
    config = json.loads((folder / "config.json").read_text())
    config["bilm"]["max_characters"] = 40
    (tmp_path / "alone" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="belongs to another model"):
        tokenizer.save_pretrained(tmp_path / "alone")


def test_uploaded_model_can_be_loaded_by_its_id(hub: Hub, model: ElmoModel, folder: Path) -> None:
    old = {"model-00001-of-00001.safetensors": b"old", "config.json": b"old", "notes.txt": b""}
    hub.commit("user/elmo", old, "main")
    model.card = None
    model.push_to_hub("user/elmo", token="hf_test")
    [*_, files] = hub.commits["user/elmo"].values()
    assert sorted(files) == ["README.md", "config.json", "model.safetensors", "notes.txt"]
    assert b'elmore.load("user/elmo")' in files["README.md"]
    expected = elmore.load(folder, device="cpu")
    assert elmore.load("user/elmo", device="cpu").weights_hash == expected.weights_hash
    downloaded = AutoModel.from_pretrained("user/elmo", revision="main")
    batch = AutoTokenizer.from_pretrained("user/elmo")(TEXTS[:1], return_tensors="pt")
    np.testing.assert_array_equal(
        downloaded(**batch).last_hidden_state[0].numpy(),
        expected.embed(TEXTS[:1], layers="average")[0],
    )


def test_save_pretrained_can_upload(hub: Hub, model: ElmoModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "elmo", push_to_hub=True, token="hf_test", private=True)
    assert "config.json" in [*hub.commits["user/elmo"].values()][-1]


def test_revision_selects_the_weights(hub: Hub, files: Files, embedder: elmore.Embedder) -> None:
    first = hub.commit("user/elmo", files, "main")
    hub.commit("user/elmo", {"config.json": b"{}"}, "main")
    model = AutoModel.from_pretrained("user/elmo", revision=first)
    assert model.config.text == {"tokenizer": "moses", "language": "en"}


def test_tokenizer_pads_truncates_and_takes_words(tokenizer: ElmoTokenizer) -> None:
    expected = elmore.encode_sentences(TOKENS)
    ids, mask = expected.ids[:, 1:-1], expected.word_mask  # without boundary tokens
    ids = torch.where(mask[..., None], ids, 0)
    for batch in (
        tokenizer(TEXTS, padding=True, return_tensors="pt"),
        tokenizer(TOKENS, padding="longest", is_split_into_words=True, return_tensors="pt"),
        tokenizer.pad(tokenizer(TEXTS), return_tensors="pt"),
    ):
        assert torch.equal(batch["input_ids"], ids)
        assert torch.equal(batch["attention_mask"], mask.long())
    assert tokenizer(TEXTS[2])["input_ids"] == ids[2, :2].tolist()
    assert tokenizer(["Banks", "fail"], is_split_into_words=True)["attention_mask"] == [1, 1]
    assert tokenizer.encode(TEXTS[2]) == tokenizer.convert_tokens_to_ids(TOKENS[2])
    assert tokenizer.tokenize(TEXTS[0]) == TOKENS[0]
    short = tokenizer(TEXTS, padding=True, truncation=True, max_length=2, return_tensors="np")
    np.testing.assert_array_equal(short["input_ids"], ids[:, :2])
    long = tokenizer(TEXTS, padding="max_length", max_length=8, return_tensors="pt")
    assert long["input_ids"].shape == (3, 8, 50)
    left = tokenizer(TEXTS, padding=True, padding_side="left", pad_to_multiple_of=4)
    assert left["attention_mask"][2] == [0, 0, 0, 0, 0, 0, 1, 1]
    assert tokenizer([], padding=True, return_tensors="pt")["input_ids"].shape == (0, 0, 50)


def test_padding_on_the_left_does_not_change_vectors(
    model: ElmoModel, tokenizer: ElmoTokenizer
) -> None:
    sides = ("right", "left")
    right, left = (
        tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt") for side in sides
    )
    expected, actual = model(**right).last_hidden_state, model(**left).last_hidden_state
    assert torch.equal(actual[left.attention_mask.bool()], expected[right.attention_mask.bool()])
    without_mask = model(left.input_ids, return_dict=False)
    assert torch.equal(without_mask[0], actual)


def test_data_collator_pads_features(tokenizer: ElmoTokenizer) -> None:
    features = [{**tokenizer(text), "label": i} for i, text in enumerate(TEXTS)]
    batch = DataCollatorWithPadding(tokenizer)(features)
    assert batch["input_ids"].shape == (3, 6, 50)
    assert batch["labels"].tolist() == [0, 1, 2]


def test_invalid_texts_are_rejected(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(TypeError, match=r"text 1 is list; .* is_split_into_words=True"):
        tokenizer(["a", ["b"]])
    with pytest.raises(TypeError, match="sentence 0 is a string"):
        tokenizer(["a", ["b"]], is_split_into_words=True)
    with pytest.raises(InputError, match="text_pair is not supported"):
        tokenizer("a", "b")
    with pytest.raises(InputError, match="pass padding=True"):
        tokenizer(TEXTS, return_tensors="pt")
    with pytest.raises(InputError, match="return_tensors must be pt, np or None, got 'tf'"):
        tokenizer("a", return_tensors="tf")


def test_tokenizer_can_be_chosen(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder, tokenizer="whitespace")
    assert tokenizer.tokenize("the bank.") == ["the", "bank."]


def test_unfrozen_model_has_the_gradients_of_the_bilm(
    model: ElmoModel, tokenizer: ElmoTokenizer
) -> None:
    batch = tokenizer(TEXTS, padding=True, padding_side="left", return_tensors="pt")
    frozen = model(**batch).last_hidden_state
    assert not frozen.requires_grad
    bilm = copy.deepcopy(model.bilm).requires_grad_()
    encoded = elmore.encode_sentences(TOKENS)
    layers = bilm(*encoded).layers[:, :, 1:-1].mean(dim=1)[encoded.word_mask]
    layers.square().sum().backward()
    model.requires_grad_()
    output = model(**batch).last_hidden_state
    torch.testing.assert_close(output, frozen, rtol=0, atol=1e-6)
    output.square().sum().backward()
    for actual, expected in zip(model.bilm.parameters(), bilm.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-4, atol=1e-6)


def test_frozen_model_takes_changed_weights(model: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    batch = tokenizer(TEXTS[:1], return_tensors="pt")
    before = model(**batch).last_hidden_state
    model.train()
    assert torch.equal(model(**batch).last_hidden_state, before)  # no dropout
    model.load_state_dict({name: 0 * value for name, value in model.state_dict().items()})
    assert not model(**batch).last_hidden_state.any()
    model.requires_grad_()
    torch.nn.init.ones_(model.bilm.encode.project.bias)
    model.requires_grad_(False)
    assert model(**batch).last_hidden_state.any()
    [*parameters] = model.bilm.parameters()
    for requires_grad in (True, False):  # without `model.requires_grad_`, as some trainers do
        for parameter in parameters:
            parameter.requires_grad = requires_grad
        after = model(**batch).last_hidden_state
        with torch.no_grad():
            model.bilm.encode.project.bias.zero_()
    assert not after.any()


def test_engine_is_kept_unless_the_weights_move(model: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    batch = tokenizer(TEXTS[:1], return_tensors="pt")
    before, engine = model(**batch).last_hidden_state, model._engine
    model.to("cpu").float()
    assert model._engine is engine
    assert torch.equal(model(**batch).last_hidden_state, before)
    assert model.bfloat16()(**batch).last_hidden_state.dtype == torch.bfloat16


def test_model_can_be_pickled(model: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    batch = tokenizer(TEXTS[:1], return_tensors="pt")
    expected = model(**batch).last_hidden_state
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(**batch).last_hidden_state, expected)
    tokens = pickle.loads(pickle.dumps(tokenizer))(TEXTS[:1], return_tensors="pt")
    assert torch.equal(tokens.input_ids, batch.input_ids)


def test_new_model_has_random_weights_of_the_bilm(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder)
    assert isinstance(config, ElmoConfig)
    assert (config.hidden_size, config.num_hidden_layers) == (32, 2)
    torch.manual_seed(1)
    expected = elmore.BiLM(elmore.BiLMConfig.tiny()).state_dict()
    torch.manual_seed(1)
    actual = AutoModel.from_config(config).bilm.state_dict()
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


def test_device_map_names_one_device(folder: Path) -> None:
    assert AutoModel.from_pretrained(folder, device_map={"": "cpu"}).device.type == "cpu"
    with pytest.raises(InputError, match="one device"):
        AutoModel.from_pretrained(folder, device_map={"encode": 0, "lstm": 1})


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("huggingface", "transformers", "hf"),
        ("sklearn", "sklearn", "sklearn"),
        ("spacy", "spacy", "spacy"),
    ],
)
def test_missing_extra_is_named(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    name = f"elmore.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingExtraError, match=rf'pip install "elmore\[{extra}\]"$'):
        __import__(name)
