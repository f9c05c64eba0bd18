"""Oracles: the biLM run by hand, sentence by sentence; invariants of batching and streaming."""

import copy
import gc
import pickle
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import elmore
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.inference import cpu, word_cache
from elmore.text.characters import NUM_CHARACTERS, encode_sentences
from tests.cpu import needs_int8, needs_onednn, needs_onednn_bf16

SENTENCES = [
    ["He", "sat", "by", "the", "bank"],
    ["Banks", "fail"],
    [],
    ["the"] * 40,
    ["", "<S>", "x" * 100, "\u00e9\u4e2d\ud800"],
]


@torch.no_grad()
def by_hand(bilm: BiLM, words: list[str]) -> np.ndarray:
    return bilm(*encode_sentences([words])).layers[0, :, 1:-1].numpy()


def many_sentences(count: int) -> list[list[str]]:
    draw = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    return [draw.choices(words, k=draw.randrange(0, 30)) for _ in range(count)]


def test_vectors_are_those_of_the_bilm(bilm: BiLM, embedder: Embedder) -> None:
    for words, vectors in zip(SENTENCES, embedder.embed(SENTENCES), strict=True):
        assert vectors.dtype == np.float32
        assert vectors.shape == (3, len(words), 32)
        np.testing.assert_allclose(vectors, by_hand(bilm, words), atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "pick"),
    [
        ("top", lambda v: v[-1]),
        ("average", lambda v: v.mean(0)),
        (0, lambda v: v[0]),
        (1, lambda v: v[1]),
    ],
)
def test_choice_of_layers(embedder: Embedder, layers, pick) -> None:
    for chosen, everything in zip(
        embedder.embed(SENTENCES, layers=layers), embedder.embed(SENTENCES), strict=True
    ):
        np.testing.assert_allclose(chosen, pick(everything), atol=1e-6)


def test_the_same_call_twice_is_bit_equal(embedder: Embedder) -> None:
    sentences = many_sentences(100)
    embedder.embed(many_sentences(7))  # whatever came before
    first, second = embedder.embed(sentences), embedder.embed(sentences)
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("batch_words", [1, 50, 300, 100_000])
def test_any_batch_and_any_order_agree(embedder: Embedder, batch_words: int) -> None:
    sentences = many_sentences(60)
    expected = {i: embedder.embed([words])[0] for i, words in enumerate(sentences)}
    order = list(range(60))
    random.Random(1).shuffle(order)
    found = embedder.embed([sentences[i] for i in order], batch_words=batch_words)
    for i, vectors in zip(order, found, strict=True):
        np.testing.assert_allclose(vectors, expected[i], atol=1e-5)


def counting(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many distinct words each call of the token encoder gets, from now on."""
    encoded: list[int] = []
    engine = embedder._runner.engine
    encode = engine.encode

    def count(ids: torch.Tensor) -> torch.Tensor:
        encoded.append(len(ids.unique(dim=0)))
        return encode(ids)

    monkeypatch.setattr(engine, "encode", count)
    return encoded


def test_each_distinct_word_is_encoded_once_for_all_calls(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = counting(embedder, monkeypatch)
    sentences = many_sentences(200)
    first = embedder.embed(sentences, batch_words=200)
    distinct = {word for words in sentences for word in words}
    assert sum(encoded) == len(distinct)
    again = embedder.embed(reversed(sentences), batch_words=300)
    embedder.word_vectors(sentences[0])
    assert sum(encoded) == len(distinct)
    for a, b in zip(first, reversed(again), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    embedder.word_vectors(["new"])
    assert sum(encoded) == len(distinct) + 1
    embedder.free()
    embedder.embed(sentences)
    assert sum(encoded) == 2 * len(distinct) + 1


SMALLEST = pytest.mark.parametrize("smallest", [1, 10**9], ids=["packed", "plain"])


@SMALLEST
@pytest.mark.parametrize("part", ["forward_lstms.0.input.weight", "encode.embed.weight"])
def test_an_embedder_owns_its_weights_until_refreshed(
    bilm: BiLM, smallest: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the biLM by hand, after its weights were changed in place."""
    monkeypatch.setattr(cpu, "_SMALLEST", smallest)
    embedder = Embedder(bilm, device="cpu")
    before = embedder.embed(SENTENCES)
    with torch.no_grad():
        bilm.get_parameter(part).mul_(1.5)
    for a, b in zip(embedder.embed(SENTENCES), before, strict=True):
        np.testing.assert_array_equal(a, b)
    stream = embedder.stream(SENTENCES)
    embedder.refresh()
    after = embedder.embed(SENTENCES)
    np.testing.assert_allclose(after[0], by_hand(bilm, SENTENCES[0]), atol=1e-6)
    assert not np.array_equal(after[0], before[0])
    for (_, a), b in zip(stream, before, strict=True):  # began with the weights of before
        np.testing.assert_array_equal(a, b)


@SMALLEST
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_model_passed_in_stays_as_it_is(
    bilm: BiLM, smallest: int, precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_SMALLEST", smallest)
    bilm.double().train()
    bilm.forward_lstms[0].requires_grad_(False)
    names = list(dict(bilm.named_modules()))
    before = {name: (p, p.clone(), p.requires_grad) for name, p in bilm.named_parameters()}
    embedder = Embedder(bilm, device="cpu", precision=precision)
    [vectors, *_] = embedder.embed(SENTENCES)
    embedder.embed(SENTENCES, carry_state=True)
    assert embedder.bilm is bilm
    assert list(dict(bilm.named_modules())) == names
    assert all(module.training for module in bilm.modules())
    for name, parameter in bilm.named_parameters():
        assert parameter is before[name][0]
        assert parameter.dtype == torch.float64
        assert torch.equal(parameter, before[name][1])
        assert parameter.requires_grad == before[name][2]
    bound = 1e-5 if precision == "fp32" else 0.05
    np.testing.assert_allclose(vectors, by_hand(bilm.eval(), SENTENCES[0]), atol=bound)


@SMALLEST
def test_models_made_in_inference_mode_embed(
    bilm: BiLM, tmp_path: Path, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_SMALLEST", smallest)
    Embedder(bilm, device="cpu").save(tmp_path / "model")
    with torch.inference_mode():
        loaded = elmore.load(tmp_path / "model", device="cpu")
        for embedder in (loaded, Embedder(loaded.bilm, device="cpu"), loaded):
            [vectors, *_] = embedder.embed(SENTENCES)
            np.testing.assert_allclose(vectors, by_hand(bilm, SENTENCES[0]), atol=1e-6)
    [vectors, *_] = loaded.embed([["another"], *SENTENCES[1:]])
    np.testing.assert_allclose(vectors, by_hand(bilm, ["another"]), atol=1e-6)


@SMALLEST
def test_threads_share_an_embedder(
    bilm: BiLM, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the same calls one after another."""
    monkeypatch.setattr(cpu, "_SMALLEST", smallest)
    monkeypatch.setitem(word_cache._TABLE_ROWS, "cpu", 20)  # replaced all the time
    embedder = Embedder(bilm, device="cpu")
    sentences = many_sentences(120)
    calls = [sentences[i : i + 10] for i in range(0, 120, 10)]
    expected = [embedder.embed(call, carry_state=i % 3 == 0) for i, call in enumerate(calls)]
    barrier = threading.Barrier(4)

    def work(first: int) -> list[tuple[int, list[np.ndarray]]]:
        barrier.wait()
        return [
            (i, embedder.embed(calls[i], carry_state=i % 3 == 0, batch_words=50))
            for _ in range(3)
            for i in range(first, len(calls), 4)
        ]

    with ThreadPoolExecutor(4) as threads:
        for results in threads.map(work, range(4)):
            for i, found in results:
                for a, b in zip(found, expected[i], strict=True):
                    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_carrying_state_keeps_no_layers(embedder: Embedder) -> None:
    """And the caller's iterator runs in the caller's own mode."""

    def text() -> Iterator[list[str]]:
        for sentence in SENTENCES:
            assert not torch.is_inference_mode_enabled()
            yield sentence

    for layers in ("all", "top", 0):
        for vectors in embedder.embed(text(), layers=layers, carry_state=True):
            assert vectors.flags.owndata
            assert vectors.flags.c_contiguous


def test_interleaved_streams(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = many_sentences(40)
    expected = embedder.embed(sentences)
    monkeypatch.setitem(word_cache._TABLE_ROWS, "cpu", 10)  # replaced all the time
    embedder.refresh()
    first = embedder.stream(sentences, batch_words=20)
    second = embedder.stream(reversed(sentences), batch_words=30)
    pairs = list(zip(first, second, strict=True))
    for (a, b), c, d in zip(pairs, expected, reversed(expected), strict=True):
        np.testing.assert_allclose(a.vectors, c, atol=1e-5)
        np.testing.assert_allclose(b.vectors, d, atol=1e-5)


def test_a_stream_reads_no_further_than_it_must(embedder: Embedder) -> None:
    read = 0

    def endless() -> Iterator[list[str]]:
        nonlocal read
        while True:
            read += 1
            yield ["word"] * 8

    stream = embedder.stream(endless(), batch_words=40)
    assert next(stream).vectors.shape == (3, 8, 32)
    assert read <= 40


def test_strings_are_tokenized_and_lists_are_not(bilm: BiLM) -> None:
    embedder = Embedder(bilm)
    text = "He doesn't bank."
    [from_string] = embedder.stream([text])
    assert from_string.tokens == elmore.tokenize(text)
    [from_list] = embedder.stream([["He doesn't", "bank."]])
    assert from_list.tokens == ["He doesn't", "bank."]
    [by_space] = Embedder(bilm, tokenizer="whitespace").stream([text])
    assert by_space.tokens == text.split()


def test_carried_state_reads_sentences_as_one_text(bilm: BiLM, embedder: Embedder) -> None:
    state = None
    found = embedder.embed(SENTENCES, carry_state=True)
    for words, vectors in zip(SENTENCES, found, strict=True):
        with torch.no_grad():
            layers, state = bilm(*encode_sentences([words]), state)
        np.testing.assert_allclose(vectors, layers[0, :, 1:-1], atol=1e-6)
    again = embedder.embed(SENTENCES, carry_state=True)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_nothing_in_nothing_out(embedder: Embedder) -> None:
    assert embedder.embed([]) == []
    [empty] = embedder.embed([[]])
    assert empty.shape == (3, 0, 32)
    [blank] = embedder.embed(["  "], layers="top")
    assert blank.shape == (0, 32)


@given(st.lists(st.one_of(st.text(), st.lists(st.text(), max_size=5)), max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_can_be_embedded(embedder: Embedder, sentences: list) -> None:
    for tokens, vectors in embedder.stream(sentences):
        assert vectors.shape == (3, len(tokens), 32)
        assert np.isfinite(vectors).all()


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("He sat", r"expected a list of sentences, got one string \('He sat'\)"),
        ([["a"], 7], "sentence 1 is int"),
        ([["a", None]], "sentence 0, token 1 is NoneType"),
    ],
)
def test_what_is_no_sentence_is_refused(embedder: Embedder, sentences, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        embedder.embed(sentences)


@pytest.mark.parametrize("layers", ["last", 3, -1, True])
def test_layers_that_do_not_exist_are_named(embedder: Embedder, layers) -> None:
    with pytest.raises(InputError, match="all, top, average or a number from 0 to 2"):
        embedder.embed(SENTENCES, layers=layers)


def test_wrong_devices_and_precisions_are_named(bilm: BiLM) -> None:
    with pytest.raises(InputError, match="device must be auto, cpu, cuda or cuda:NUMBER"):
        Embedder(bilm, device="tpu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="precision must be fp32, bf16 or int8"):
        Embedder(bilm, precision="fp8")  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="finds 0 GPUs, so there is no cuda:1"):
            Embedder(bilm, device="cuda:1")


@pytest.mark.parametrize("precision", ["bf16", pytest.param("int8", marks=needs_int8)])
def test_lower_precision_is_close(bilm: BiLM, embedder: Embedder, precision) -> None:
    expected = embedder.embed(SENTENCES[:2])
    rough = Embedder(bilm, precision=precision, device="cpu")
    for a, b in zip(rough.embed(SENTENCES[:2]), expected, strict=True):
        assert a.dtype == np.float32
        cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosine.min() > 0.99


def test_sentence_vectors_pool_the_words(embedder: Embedder) -> None:
    vectors = embedder.embed(SENTENCES, layers="average")
    mean = embedder.sentence_vectors(SENTENCES)
    largest = embedder.sentence_vectors(SENTENCES, pool="max")
    for i, of_words in enumerate(vectors):
        if len(of_words):
            np.testing.assert_allclose(mean[i], of_words.mean(0), atol=1e-6)
            np.testing.assert_allclose(largest[i], of_words.max(0), atol=1e-6)
        else:
            assert not mean[i].any()
    assert embedder.sentence_vectors([]).shape == (0, 32)


def test_word_vectors_are_half_of_layer_0(embedder: Embedder) -> None:
    words = SENTENCES[0]
    [layer_0] = embedder.embed([words], layers=0)
    np.testing.assert_allclose(embedder.word_vectors(words), layer_0[:, :16], atol=1e-6)


def test_encode_gives_what_the_bilm_takes(bilm: BiLM, embedder: Embedder) -> None:
    batch = embedder.encode(["He sat.", ["Banks", "fail"]])
    assert batch.ids.shape == (2, 5, 50)
    assert elmore.Elmo(bilm)(batch)[0].shape == (2, 3, 32)


def test_a_task_that_trains_the_bilm_changes_no_vectors(bilm: BiLM, embedder: Embedder) -> None:
    expected = embedder.embed(SENTENCES)
    task = elmore.Elmo(bilm, frozen=False).train()
    with torch.no_grad():
        for parameter in task.bilm.parameters():
            parameter.mul_(2)
    for a, b in zip(embedder.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert task.bilm.training


@pytest.mark.parametrize("dtype", ["int8", "float64", "bfloat16", "f4"])
def test_dtypes_that_do_not_fit_are_refused(embedder: Embedder, tmp_path: Path, dtype) -> None:
    with pytest.raises(InputError, match="dtype must be float32 or float16"):
        embedder.embed(SENTENCES, dtype=dtype)
    with pytest.raises(InputError, match="dtype must be float32 or float16"):
        embedder.save(tmp_path / "m", dtype=dtype)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "arguments", [{"layers": "last"}, {"dtype": "int8"}, {"batch_words": 0}, {"layers": 7}]
)
def test_arguments_are_checked_before_the_first_item(embedder: Embedder, arguments) -> None:
    with pytest.raises(InputError):
        embedder.stream([["a"]], **arguments)
    with pytest.raises(TypeError):
        embedder.stream("a string")


def test_a_torch_device_is_a_device(bilm: BiLM) -> None:
    assert Embedder(bilm, device=torch.device("cpu")).device == torch.device("cpu")
    assert elmore.load(device=torch.device("cpu")).device.type == "cpu"


def test_a_saved_model_is_loaded_again(embedder: Embedder, tmp_path: Path) -> None:
    embedder.save(tmp_path / "m")
    for a, b in zip(
        elmore.load(tmp_path / "m").embed(SENTENCES), embedder.embed(SENTENCES), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InputError, match="exists already"):
        embedder.save(tmp_path / "m")
    embedder.save(tmp_path / "m", overwrite=True, dtype="float16")


@pytest.fixture
def saved(bilm: BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose model counts as large, so that it is packed."""
    monkeypatch.setattr(cpu, "_SMALLEST", 1)
    Embedder(bilm, device="cpu").save(tmp_path / "saved")
    return tmp_path / "saved"


@needs_onednn
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=needs_onednn_bf16)])
def test_a_loaded_model_holds_each_matrix_once(saved: Path, precision) -> None:
    """Oracle: the tensors that Python's collector finds in memory."""
    gc.collect()
    before = {id(x) for x in gc.get_objects() if type(x) is torch.nn.Parameter}
    embedder = elmore.load(saved, device="cpu", precision=precision)
    embedder.embed(SENTENCES)
    new = [x for x in gc.get_objects() if type(x) is torch.nn.Parameter and id(x) not in before]
    assert [tuple(x.shape) for x in new] == [(NUM_CHARACTERS, 4)]  # the others are packed


@needs_onednn
@pytest.mark.parametrize("precision", ["fp32", "bf16", pytest.param("int8", marks=needs_int8)])
def test_the_plain_model_is_there_when_asked_for(bilm: BiLM, saved: Path, precision) -> None:
    """Oracle: the model that was saved."""
    embedder = elmore.load(saved, device="cpu", precision=precision)
    expected = embedder.embed(SENTENCES)
    embedder.save(saved, overwrite=True)
    for found in (embedder.bilm, elmore.load(saved, device="cpu", precision=precision).bilm):
        assert not found.training
        assert all(parameter.requires_grad for parameter in found.parameters())
        for name, weight in bilm.state_dict().items():
            assert torch.equal(found.state_dict()[name], weight)
    assert embedder.bilm is embedder.bilm
    for a, b in zip(embedder.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_onednn
def test_a_loaded_model_is_refreshed(saved: Path, bilm: BiLM) -> None:
    """From its files, or from `bilm` if that was used. Oracle: the biLM by hand."""
    embedder = elmore.load(saved, device="cpu")
    with torch.no_grad():
        bilm.forward_lstms[0].input.weight.mul_(1.5)
    Embedder(bilm, device="cpu").save(saved, overwrite=True)
    embedder.refresh()
    [vectors, *_] = embedder.embed(SENTENCES)
    np.testing.assert_allclose(vectors, by_hand(bilm, SENTENCES[0]), atol=1e-6)
    with torch.no_grad():
        embedder.bilm.forward_lstms[0].input.weight.mul_(1.5)
    embedder.refresh()
    [vectors, *_] = embedder.embed(SENTENCES)
    np.testing.assert_allclose(vectors, by_hand(embedder.bilm, SENTENCES[0]), atol=1e-6)


@needs_onednn
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_packed_model_can_be_copied(saved: Path, again) -> None:
    """Oracle: the model it is a copy of."""
    embedder = elmore.load(saved, device="cpu")
    for a, b in zip(again(embedder).embed(SENTENCES), embedder.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(a, b)
