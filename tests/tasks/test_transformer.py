"""Frozen transformers as encoders. Oracle: transformers itself, one sentence at a time."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.errors import InputError
from elmore.tasks import load, read_task_config, train_task
from elmore.tasks.transformer import TransformerEncoder, is_transformer

SUBWORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdelno", *(f"##{c}" for c in "abcdelno")]
SENTENCES = [["bone", "ab"], ["a"], ["lead", "zzz", "b", "abandon"], [], ["\u0001", "a"]]


def write_transformer(path: Path, name: str, max_positions: int) -> None:
    """Write a tiny transformer with random weights, which reads 8 subwords at a time."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        name, vocab_size=len(SUBWORDS), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=max_positions, pad_token_id=0,
    )  # fmt: skip
    AutoModel.from_config(config).save_pretrained(path)
    ids = {subword: row for row, subword in enumerate(SUBWORDS)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", model_max_length=1000,
    ).save_pretrained(path)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    write_transformer(path, "bert", max_positions=8)
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path) -> TransformerEncoder:
    return TransformerEncoder(folder, device="cpu")


def by_hand(folder: Path, words: list[list[str]]) -> np.ndarray:
    """Return the vectors of a sentence, given the subwords of each word."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    ids = [2, *(SUBWORDS.index(s) for word in words for s in word), 3]
    with torch.no_grad():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    states = torch.cat(states).numpy()[:, 1:-1]
    ends = np.cumsum([len(word) for word in words])
    return np.stack([part.mean(axis=1) for part in np.split(states, ends[:-1], axis=1)], axis=1)


def pieces(word: str) -> list[str]:
    return [word[0], *(f"##{letter}" for letter in word[1:])]


def test_vectors_are_the_means_of_subwords(folder: Path, encoder: TransformerEncoder) -> None:
    vectors = encoder.embed(SENTENCES)
    assert (encoder.num_layers, encoder.dim) == (3, 8)
    assert [v.shape for v in vectors] == [(3, len(words), 8) for words in SENTENCES]
    np.testing.assert_allclose(
        vectors[0], by_hand(folder, [pieces("bone"), pieces("ab")]), atol=1e-6
    )
    np.testing.assert_allclose(vectors[1], by_hand(folder, [["a"]]), atol=1e-6)
    assert (vectors[4][:, 0] == 0).all()  # no subword is left of a control character
    np.testing.assert_allclose(vectors[4][:, 1:], vectors[1], atol=1e-6)


def test_long_sentences_are_read_in_parts(folder: Path, encoder: TransformerEncoder) -> None:
    """Six subwords fit beside [CLS] and [SEP]: `bone` and `ab`; then `c` and so on."""
    words = ["bone", "ab", "c", "deal"]
    [vectors] = encoder.embed([words])
    expected = [by_hand(folder, [pieces(word) for word in part]) for part in (words[:2], words[2:])]
    np.testing.assert_allclose(vectors, np.concatenate(expected, axis=1), atol=1e-6)


@pytest.mark.parametrize(("name", "max_positions"), [("roberta", 9), ("mpnet", 10)])
def test_long_sentences_are_read_in_parts_if_positions_have_an_offset(
    tmp_path: Path, name: str, max_positions: int
) -> None:
    """The first position is 1 here for RoBERTa, after that of [PAD]; it is always 2 for MPNet."""
    write_transformer(tmp_path, name, max_positions)
    encoder = TransformerEncoder(tmp_path, device="cpu")
    test_long_sentences_are_read_in_parts(tmp_path, encoder)


def test_stream_keeps_the_order_and_converts(encoder: TransformerEncoder) -> None:
    sentences = [["ab"] * (n % 4) for n in range(70)]
    streamed = list(encoder.stream(iter(sentences), dtype="float16"))
    assert [tokens for tokens, _ in streamed] == sentences
    assert all(vectors.dtype == np.float16 for _, vectors in streamed)
    [alone] = encoder.embed([["ab"] * 3])
    np.testing.assert_allclose(streamed[3].vectors, alone, atol=2e-3)


def test_task_is_trained_loaded_and_bound_to_its_transformer(
    folder: Path, conll: Path, tmp_path: Path
) -> None:
    changes = [f"elmo.model={folder}", "training.epochs=2", "tagger.hidden=4"]
    config = read_task_config("ner", None, changes)
    out = tmp_path / "run"
    summary = train_task(
        "ner", out, train=conll, dev=conll, config=config, device="cpu", progress=False
    )
    assert len(summary["elmo"]["input"]["weights"]) == 3
    assert load(out, device="cpu").evaluate(conll) == pytest.approx(summary["scores"]["dev"])
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    from transformers import BertConfig, BertModel

    BertModel(BertConfig.from_pretrained(folder)).save_pretrained(other)
    with pytest.raises(InputError, match="was trained with another biLM"):
        load(out, device="cpu", bilm=other)


def test_only_folders_of_transformers_are_recognized(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    assert is_transformer(folder)
    assert not is_transformer(model)
    assert not is_transformer(tmp_path)
    (tmp_path / "config.json").write_text("[")
    assert not is_transformer(tmp_path)
    assert not is_transformer(folder / "config.json")


def test_unusable_transformers_are_rejected(folder: Path, tmp_path: Path, conll: Path) -> None:
    with pytest.raises(InputError, match="not in int8"):
        TransformerEncoder(folder, precision="int8")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(InputError, match=r"has no weights; expected model\.safetensors"):
        TransformerEncoder(empty)
    (empty / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="are damaged"):
        TransformerEncoder(empty)
    unpadded = tmp_path / "unpadded"
    shutil.copytree(folder, unpadded)
    (unpadded / "special_tokens_map.json").unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("pad_token")
    (unpadded / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="has no padding token"):
        TransformerEncoder(unpadded)


@pytest.mark.parametrize("change", [{"hidden_size": 16}, {"num_hidden_layers": 3}])
def test_weights_that_do_not_fit_are_rejected(folder: Path, tmp_path: Path, change: dict) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "copy" / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(InputError, match="cannot be loaded as a transformer: "):
        TransformerEncoder(tmp_path / "copy")
